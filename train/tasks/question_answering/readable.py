"""The text in which an answer is sought, as characters that know which bytes of the original they are."""

from __future__ import annotations

import dataclasses

import numpy as np

from tokenfree.train.tasks.question_answering.tydi_files import NO_SPAN, Span, TydiExample

QUESTION_MARKER = 0xE005  # before the question; private-use codepoints as in CANINE's code for TyDi QA
FIRST_PASSAGE_MARKER = 0xE006  # that of the passage with index 0
_SPACE = 0x20


@dataclasses.dataclass(frozen=True, slots=True)
class Readable:
    """Characters to read, int64 [n] each.

    Attributes:
        codepoints: the characters.
        starts: the byte of the original at which each begins; -1 for one that is not there, such as a marker.
        ends: the byte behind it; -1 likewise.
        passages: by the index of a passage, which of the characters are its own.
    """

    codepoints: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    passages: dict[int, range] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codepoints)

    def find(self, span: Span, among: range) -> range | None:
        """The characters, `among` some that follow each other in the original, that the bytes of `span` are in.

        None where `span` is empty or not all in there.
        """
        begin, end = span
        if not among or not self.starts[among[0]] <= begin < end <= self.ends[among[-1]]:
            return None
        starts = self.starts[among.start : among.stop]
        first, last = np.searchsorted(starts, (begin, end - 1), side="right") - 1
        return range(among.start + int(first), among.start + int(last) + 1)


def readable_text(text: str) -> Readable:
    """A text as it is."""
    return Readable(*_characters(text.encode("utf-8", "surrogatepass"), 0), {0: range(len(text))})


def readable_article(example: TydiExample, max_passages: int) -> Readable:
    """The first `max_passages` passages, joined with spaces, a marker with its index and a space before each.

    Passages that are empty, or whose place is not known, are left out.
    """
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    passages, length = {}, 0
    for index, (begin, end) in enumerate(example.passages[:max_passages]):
        if (begin, end) == NO_SPAN or begin == end:
            continue
        marker = [*([_SPACE] if parts else []), FIRST_PASSAGE_MARKER + index, _SPACE]
        nowhere = np.full(len(marker), -1, dtype=np.int64)
        parts.append((np.array(marker, dtype=np.int64), nowhere, nowhere))
        parts.append(_characters(example.article[begin:end], begin))
        passages[index] = range(length + len(marker), length + len(marker) + len(parts[-1][0]))
        length = passages[index].stop
    if not parts:
        parts.append(_characters(b"", 0))
    codepoints, starts, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Readable(codepoints, starts, ends, passages)


def codepoints_of(text: str) -> np.ndarray:
    """The characters of a text, int64."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def _characters(encoded: bytes, offset: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Characters of UTF-8, and where each begins and ends; `offset` is that of the first byte."""
    text = encoded.decode("utf-8", "surrogatepass")
    starts = np.flatnonzero((np.frombuffer(encoded, dtype=np.uint8) & 0xC0) != 0x80) + offset
    return codepoints_of(text), starts, np.append(starts[1:], offset + len(encoded))[: len(starts)]
