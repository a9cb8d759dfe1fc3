"""Windows of a data directory with their words, subwords and masks, ready to be drawn."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary

BLOCK = "█"
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # the name of a byte-fallback piece


class Piece(NamedTuple):
    """A word or subword of a window: from character `start` to `end`, drawn as `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Window:
    """A window, or its first characters, with its features."""

    number: int  # in the training split
    labels: Mapping[str, str]  # document and language, where they are kept
    characters: int  # of the whole window
    text: str
    words: Sequence[Piece] | None  # None: the data have no such columns
    subwords: Sequence[Piece] | None
    masked: str | None  # as CANINE-S sees it, masked characters as blocks; None without subwords


def windows(directory: str, manifest: Manifest, *, num_windows: int, width: int) -> Iterator[Window]:
    """`num_windows` windows, spread evenly over the training split, the first `width` characters of each."""
    storage = Storage.at(directory)
    vocabulary = None
    if manifest.vocabulary_sha256 is not None:
        vocabulary = Vocabulary.load(storage.read_bytes("vocabulary/subwords.model"))
    for number, row in _sample(storage, manifest, num_windows):
        known = set(row.schema.names)
        text = row.column("text")[0].as_py()
        words = subwords = masked = None
        if "word_starts" in known:
            words = [Piece(*span, text[slice(*span)]) for span in _character_spans(text, _spans(row, "word"), width)]
        if "subword_starts" in known and vocabulary is not None:
            names = vocabulary.pieces()
            spelled = [names[id] for id in row.column("subword_ids")[0].values.to_pylist()]
            subwords = subword_pieces(text[:width], _spans(row, "subword"), spelled)
            masked = _masked(row, vocabulary, number, width)
        labels = {name: str(row.column(name)[0]) for name in ("document", "language") if name in known}
        yield Window(number, labels, len(text), text[:width], words, subwords, masked)


def subword_pieces(text: str, spans: Sequence[tuple[int, int]], names: Sequence[str]) -> list[Piece]:
    """The subwords of `text` by their spans of characters and names. A run of bytes is one piece, drawn in `<>`."""
    pieces: list[Piece] = []
    in_bytes = False
    for (start, end), name in zip(spans, names, strict=True):
        if end > len(text):
            break
        goes_on = in_bytes
        in_bytes = bool(_BYTE.fullmatch(name))
        if in_bytes and goes_on and start <= pieces[-1].end:
            start = pieces.pop().start
        pieces.append(Piece(start, end, f"<{text[start:end]}>" if in_bytes else text[start:end]))
    return pieces


def on_one_line(text: str) -> str:
    """The text with its ends of lines drawn."""
    return text.replace("\n", "⏎ ")


def _character_spans(text: str, spans: Sequence[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """Spans of UTF-8 bytes as spans of characters, of those that end within `width`."""
    encoded = text.encode()
    near = [span for span in spans if span[0] <= 4 * width]  # bytes: enough for `width` characters
    found = [(len(encoded[:start].decode()), len(encoded[:end].decode())) for start, end in near]
    return [span for span in found if span[1] <= width]


def _spans(row: pa.RecordBatch, kind: str) -> list[tuple[int, int]]:
    starts, ends = (row.column(f"{kind}_{side}")[0].values.to_pylist() for side in ("starts", "ends"))
    return list(zip(starts, ends, strict=True))


def _sample(storage: Storage, manifest: Manifest, num_windows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows (number in the training split, the row), evenly spaced."""
    shards = manifest.splits["train"].shards
    bounds = np.cumsum([0, *(shard.rows for shard in shards)])
    chosen = np.unique(np.linspace(0, bounds[-1] - 1, num_windows).astype(int)) if bounds[-1] and num_windows else []
    for number in chosen:
        index = int(np.searchsorted(bounds, number, side="right")) - 1
        with storage.open(shards[index].path) as file:
            offset = int(number - bounds[index])
            for batch in pa.ipc.open_stream(file):
                if offset < batch.num_rows:
                    yield int(number), batch.slice(offset, 1)
                    break
                offset -= batch.num_rows


def _masked(row: pa.RecordBatch, vocabulary: Vocabulary, number: int, width: int) -> str:
    """The window as CANINE-S would see it, masked characters as blocks."""
    from tokenfree.preprocess.text.specials import MASK
    from tokenfree.train.objectives.canine_s import Config

    window, config = row.column("codepoints")[0].values.to_numpy(), Config()
    collate = config.collator(vocabulary, len(window) + 2 + config.spare, seed=0)
    columns = {name: [row.column(name)[0].values.to_numpy()] for name in collate.columns}
    seen = collate(columns, np.array([number]))["codepoints"][0, 1 : len(window) + 1]
    return "".join(BLOCK if new == MASK else chr(new) for new in seen[:width])
