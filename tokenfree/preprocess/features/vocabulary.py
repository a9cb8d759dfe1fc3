"""The subword vocabulary: training, and subwords with exact offsets."""

import functools
import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import sentencepiece

from tokenfree.core.child import Child, Link
from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.text.characters import SPACE, classes_of, codepoints_of, cumulate
from tokenfree.preprocess.text.sentences import cut, sentence_starts

NO_MODEL = "vocabulary.model: not a SentencePiece model; give the path of a .model file"
PAD_ID, UNKNOWN_ID = 0, 1
_MAX_LINE_BYTES = 4192  # SentencePiece drops longer sentences, so they are cut here
_MAX_LINE_CHARACTERS = _MAX_LINE_BYTES // 4
# Each takes every fourth sentence, so the rounding depends on this number and not on the machine.
_THREADS = 4
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))  # printable ASCII; a space has a piece if there is one
# SentencePiece drops lines with these: its own mark of an unknown character, and NUL.
_RESERVED = str.maketrans({"▅": " ", "\0": " "})


def train_vocabulary(texts: Iterable[str], config: VocabularyConfig, seed: int) -> bytes:
    """Train a SentencePiece model on `texts` (all in memory at once) and return its bytes.

    The model does not normalise, so that offsets are exact. One space is put before each text, so that its
    first word has the same pieces as elsewhere. Raises UserError if there is no text, or more distinct
    characters than `vocabulary.size`, and JobError if SentencePiece failed for another reason.
    """
    lines = list(_lines(texts))
    try:
        return _train(lines, config, config.size, seed)
    except RuntimeError as error:
        largest = re.search(r"set it to a value <= (\d+)", str(error))
        if largest is None:
            raise _explain(str(error), config.size) from error
    try:
        return _train(lines, config, int(largest[1]), seed)
    except RuntimeError as error:
        raise _explain(str(error), int(largest[1])) from error


def _train(lines: list[str], config: VocabularyConfig, size: int, seed: int) -> bytes:
    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        model_type=config.algorithm,
        character_coverage=config.character_coverage,
        required_chars=_PRINTABLE if config.required_characters == "ascii" else "",
        byte_fallback=config.byte_fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        max_sentence_length=_MAX_LINE_BYTES,
        pad_id=PAD_ID,
        unk_id=UNKNOWN_ID,
        bos_id=-1,
        eos_id=-1,
        num_threads=_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.translate(_RESERVED).split("\n"):
            if len(line) <= _MAX_LINE_CHARACTERS:
                if line and not line.isspace():
                    yield line
            else:
                yield from (
                    line[start:end] for start, end in cut(line, sentence_starts(line), _MAX_LINE_CHARACTERS)
                )


def _explain(message: str, size: int) -> Exception:
    too_low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_low:
        return UserError(
            f"vocabulary.size: {size} is too small for the characters of this corpus; "
            f"set it to at least {too_low[1]}, or lower vocabulary.character_coverage"
        )
    if "!sentences_.empty()" in message:
        return UserError("vocabulary: there is no text to train it on; add input, or give vocabulary.model")
    return JobError(
        f"vocabulary: SentencePiece could not train it ({message}); give vocabulary.model instead"
    )


_TEXTS_OF_MESSAGE = 100
# Characters; with fewer, training takes hardly longer than starting a process.
WORTH_A_PROCESS = 200_000


def train_in_subprocess(texts: Iterable[str], config: VocabularyConfig, seed: int, size: int) -> bytes:
    """Call `train_vocabulary` in a process that can be stopped, or here if all texts have few characters (`size`).

    Raises UserError and JobError as `train_vocabulary` does, and JobError if the process was killed.
    """
    if size < WORTH_A_PROCESS:
        return train_vocabulary(texts, config, seed)
    with Child(f"{__name__}:train_on_messages", config, seed) as child:
        remaining = iter(texts)
        # For 300,000 short texts this takes 0.9 s; with a message for each of them 4.8 s.
        while batch := list(itertools.islice(remaining, _TEXTS_OF_MESSAGE)):
            child.send(batch)
        child.send(None)
        for _ in child.messages(60.0):
            pass
        model = child.result()
    if model is None:
        raise JobError(
            "vocabulary: the process that trains it was ended; was it out of memory? Lower "
            "vocabulary.sample_characters, or run the same command again"
        )
    return model


def train_on_messages(link: Link, config: VocabularyConfig, seed: int) -> bytes:
    """Call `train_vocabulary` with the texts as they arrive in lists, so that the process does not keep them."""

    def received() -> Iterator[str]:
        yield from itertools.chain.from_iterable(iter(link.receive, None))
        # Training ends with the process that waits for it.
        link.listen(lambda message: None)

    return train_vocabulary(received(), config, seed)


MAX_TEXT_CHARACTERS = 65_535  # offsets are uint16
_SPACE_MARK = "▁"  # SentencePiece's symbol for U+0020
# Every rule of normalisation changes some of these characters.
_PROBE = "".join(map(chr, range(0x21, 0x3000)))
# The same, if no piece holds it.
_SPACE_BYTES = ["<0xE2>", "<0x96>", "<0x81>"]


class FlatEncoding(NamedTuple):
    """The subwords of many texts: ids, int32 [n], and codepoint offsets of their visible parts, uint16 [n].

    The subwords of text i are `offsets[i]:offsets[i + 1]`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray


class Vocabulary:
    """A SentencePiece model (https://arxiv.org/abs/1808.06226) that returns pieces with exact codepoint offsets.

    Offsets are computed from the lengths of the pieces. Texts with unknown pieces, and all texts if the model
    normalises, use SentencePiece's own offsets, which take about four times as long. Raises UserError if the
    bytes are not a SentencePiece model.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        # SentencePiece would log an error and raise none.
        if not model:
            raise UserError(NO_MODEL)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.size = self._processor.get_piece_size()
            # In the order of their ids, with "▁" for a space.
            self.pieces: list[str] = self._processor.id_to_piece(list(range(self.size)))
        except (RuntimeError, ValueError) as error:
            raise UserError(NO_MODEL) from error
        self._is_byte = np.array(self._processor.is_byte(list(range(self.size))))
        self._bytes = np.zeros(self.size, np.uint8)
        self._bytes[self._is_byte] = [int(self.pieces[id][1:-1], 16) for id in np.flatnonzero(self._is_byte)]
        texts = [piece.replace(_SPACE_MARK, " ") for piece in self.pieces]
        # A byte has the length of its character if it starts one, else none. An unknown piece may have any
        # length.
        self._lengths = np.array(list(map(len, texts)))
        self._lengths[self._is_byte] = self._bytes[self._is_byte] & 0xC0 != 0x80
        self._lengths[self._processor.unk_id()] = MAX_TEXT_CHARACTERS + 2
        self._num_leading = np.array([len(text) - len(text.lstrip()) for text in texts])
        self._num_trailing = np.array([len(text) - len(text.rstrip()) for text in texts])
        spaced, plain = self._processor.normalize("a  b"), self._processor.normalize(_PROBE)
        self._prefix, self._suffix = int(spaced.startswith(_SPACE_MARK)), int(spaced.endswith(_SPACE_MARK))
        self._keeps_text = (spaced.strip(_SPACE_MARK), plain.strip(_SPACE_MARK)) == ("a▁▁b", _PROBE)

    @classmethod
    @functools.lru_cache(maxsize=2)
    def load(cls, model: bytes) -> Self:
        return cls(model)

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self.model,)

    def num_byte_pieces(self, ids: np.ndarray) -> int:
        return int(np.count_nonzero(self._is_byte[ids]))

    def encode_flat(self, texts: Sequence[str]) -> FlatEncoding:
        """Return the subwords of all texts. Raises ValueError if a text has more than 65,535 characters.

        Offsets exclude surrounding white space, and pieces of white space alone are left out. Byte-fallback
        pieces have the span of their character. A run of unknown characters is one piece. Newlines count as
        spaces.
        """
        sizes = np.array([len(text) for text in texts], dtype=np.int64)
        if len(texts) and sizes.max() > MAX_TEXT_CHARACTERS:
            raise ValueError(
                f"a text of {sizes.max()} characters; subword offsets reach {MAX_TEXT_CHARACTERS}"
            )
        spaced = [text.replace("\n", " ") for text in texts]
        rows = self._processor.encode(spaced, return_type="numpy", num_threads=1) if spaced else []
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        offsets = cumulate([len(row) for row in rows])
        # Of the pieces, in the joined texts with the spaces that are added.
        edges = cumulate(self._lengths.take(ids))
        bases = edges[offsets]
        exact = np.array([self._keeps_text and _SPACE_MARK not in text for text in texts], dtype=bool)
        exact &= np.diff(bases) == sizes + (sizes > 0) * (self._prefix + self._suffix)
        starts, ends = edges[:-1] + self._num_leading.take(ids), edges[1:] - self._num_trailing.take(ids)
        self._place_bytes(ids, starts, ends)
        shifts = np.repeat(bases[:-1] + self._prefix, np.diff(offsets))
        kept = np.flatnonzero(starts < ends)
        ids, starts, ends = (column.take(kept) for column in (ids, starts - shifts, ends - shifts))
        offsets = np.searchsorted(kept, offsets)
        if not exact.all():
            parts = [
                (ids[a:b], starts[a:b], ends[a:b]) if exact[row] else self._exact_spans(spaced[row])
                for row, (a, b) in enumerate(pairwise(offsets))
            ]
            ids, starts, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
            offsets = cumulate([len(part[0]) for part in parts])
        return FlatEncoding(ids, starts.astype(np.uint16), ends.astype(np.uint16), offsets)

    def _place_bytes(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        """Give each byte the span of its character, or an empty one if that is white space."""
        places = np.flatnonzero(self._is_byte.take(ids))
        if not len(places):
            return
        spelled = self._bytes[ids[places]]
        begins = spelled & 0xC0 != 0x80
        characters = spelled.tobytes().decode().replace(_SPACE_MARK, " ")
        blank = classes_of(codepoints_of(characters)) == SPACE
        starts[places] = np.where(blank[np.cumsum(begins) - 1], ends[places], ends[places] - 1)

    def _exact_spans(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mapping = self._processor.encode(text, return_type="offset_mapping")
        ids = np.array(mapping["ids"], dtype=np.int32)
        starts, ends = np.array(mapping["offsets"], dtype=np.int64).reshape(-1, 2).T
        # Only the last byte of a character has a width there; the space that SentencePiece adds has none in
        # all three.
        has_none = self._is_byte[ids] & (starts == ends)
        if [self.pieces[id] for id in ids[:3]] == _SPACE_BYTES and has_none[:3].all():
            has_none[:3] = False
        ends = np.minimum(ends + has_none, len(text))
        # Empty spans may follow the last character.
        space = np.append(classes_of(codepoints_of(text)) == SPACE, False)
        while (leading := space[starts] & (starts < ends)).any():
            starts = starts + leading
        while (trailing := space[ends - 1] & (starts < ends)).any():
            ends = ends - trailing
        kept = starts < ends
        return ids[kept], starts[kept], ends[kept]
