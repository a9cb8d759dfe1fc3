"""Cut documents into windows and compute all their columns in bulk."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.features.vocabulary import FlatEncoding, Vocabulary
from tokenfree.preprocess.records import CHARACTER_COLUMNS, COLUMN_TYPES, SUBWORD_COLUMNS, Document, schema
from tokenfree.preprocess.text.characters import SPACE, byte_offsets, classes_of, codepoints_of, cumulate
from tokenfree.preprocess.text.sentences import cut, sentence_starts
from tokenfree.preprocess.text.words import byte_spans

_SEPARATOR = "\n"
_PART_CHARACTERS = 500_000  # 13 MB/s and 60 MB of arrays; a whole book collection at once: 10 MB/s and 800 MB


class Window(NamedTuple):
    """A window before its columns. `document` and `language` are those of the document that it starts in."""

    document: str
    language: str
    text: str
    sentence_starts: np.ndarray  # int64 [sentences], codepoint offsets into `text`


class WindowBatch(NamedTuple):
    """Windows as rows of a shard, with the numbers of codepoints, subwords, and subwords that are bytes."""

    rows: pa.RecordBatch
    characters: int
    subwords: int
    byte_pieces: int


def iterate_windows(
    documents: Sequence[Document], config: PreprocessConfig, vocabulary: Vocabulary | None
) -> Iterator[WindowBatch]:
    """Yield the windows of `documents` (normalised text) in order, one row each, with the columns of `config.columns`.

    A batch has about half a million characters, so that memory stays bounded. With `window.pack:
    across_documents`, a window names the document in which it starts. Callers must pass groups that do not
    depend on the number of workers, because a group decides what is packed. Without a vocabulary the subword
    columns hold empty lists.
    """
    part: list[Window] = []
    characters = 0
    for window in _windows(documents, config):
        part.append(window)
        characters += len(window.text)
        if characters >= _PART_CHARACTERS:
            yield _build_batch(part, config, vocabulary)
            part, characters = [], 0
    if part:
        yield _build_batch(part, config, vocabulary)


def _build_batch(
    windows: list[Window], config: PreprocessConfig, vocabulary: Vocabulary | None
) -> WindowBatch:
    batch_schema = schema(config.columns)
    columns: dict[str, pa.Array] = {
        "document": pa.array([window.document for window in windows], pa.string()),
        "language": pa.array([window.language for window in windows], pa.string()),
        "text": pa.array([window.text for window in windows], pa.string()),
    }
    if not CHARACTER_COLUMNS.isdisjoint(batch_schema.names):
        columns |= _character_columns(windows)
    if not {"word_starts", "word_ends"}.isdisjoint(batch_schema.names):
        columns |= _word_columns(windows)
    if not SUBWORD_COLUMNS.isdisjoint(batch_schema.names):
        columns |= _subword_columns(windows, vocabulary)
    if "sentence_starts" in batch_schema.names:
        columns |= _sentence_columns(windows)
    rows = pa.RecordBatch.from_arrays([columns[name] for name in batch_schema.names], schema=batch_schema)
    subwords = (
        columns["subword_ids"].values.to_numpy() if "subword_ids" in columns else np.zeros(0, dtype=np.int32)
    )
    byte_pieces = vocabulary.num_byte_pieces(subwords) if vocabulary is not None else 0
    return WindowBatch(rows, sum(len(window.text) for window in windows), len(subwords), byte_pieces)


def _windows(documents: Sequence[Document], config: PreprocessConfig) -> Iterator[Window]:
    if config.window.pack == "none":
        groups = ([document] for document in documents)
    else:
        groups = (list(group) for _, group in groupby(documents, attrgetter("language")))
    for group in groups:
        group = [document for document in group if document.text and not document.text.isspace()]
        if group:
            yield from _cut_group(group, config.window.max_characters)


def _cut_group(group: list[Document], max_characters: int) -> Iterator[Window]:
    text = _SEPARATOR.join(document.text for document in group)
    if len(group) == 1 and len(text) <= max_characters and text == text.strip():
        # What follows would be most of the time of a short record.
        yield Window(group[0].id, group[0].language, text, sentence_starts(text).astype(np.int64))
        return
    heads = np.cumsum([0, *(len(document.text) + 1 for document in group)])
    starts = np.concatenate(
        [sentence_starts(document.text) + head for document, head in zip(group, heads[:-1], strict=True)]
    ).astype(np.int64)
    spans = cut(text, starts, max_characters)
    begins, ends = np.array(spans).T
    owners = np.searchsorted(heads, begins, side="right") - 1
    starts = np.union1d(starts, begins)
    inner = zip(np.searchsorted(starts, begins), np.searchsorted(starts, ends), strict=True)
    for (start, end), owner, (first, last) in zip(spans, owners, inner, strict=True):
        document = group[owner]
        yield Window(document.id, document.language, text[start:end], starts[first:last] - start)


def _character_columns(windows: Sequence[Window]) -> dict[str, pa.Array]:
    codepoints = codepoints_of("".join(window.text for window in windows))
    offsets = cumulate([len(window.text) for window in windows])
    return {name: _lists(name, character_column(name, codepoints), offsets) for name in CHARACTER_COLUMNS}


def character_column(name: str, codepoints: np.ndarray) -> np.ndarray:
    """Return the column `codepoints` (int32) or `whitespace` (bool) of the characters `codepoints` (uint32)."""
    return codepoints.view(np.int32) if name == "codepoints" else classes_of(codepoints) == SPACE


def _word_columns(windows: Sequence[Window]) -> dict[str, pa.Array]:
    # No word spans the separator, so the words of a window do not depend on its neighbours.
    codepoints = codepoints_of(_SEPARATOR.join(window.text for window in windows))
    positions = byte_offsets(codepoints)
    starts, ends = byte_spans(classes_of(codepoints), positions)
    bases = positions[cumulate([len(window.text) + 1 for window in windows])[:-1]]
    offsets = np.append(np.searchsorted(starts, bases), len(starts))
    shifts = np.repeat(bases, np.diff(offsets))
    return {
        "word_starts": _lists("word_starts", (starts - shifts).astype(np.uint16), offsets),
        "word_ends": _lists("word_ends", (ends - shifts).astype(np.uint16), offsets),
    }


def _subword_columns(windows: Sequence[Window], vocabulary: Vocabulary | None) -> dict[str, pa.Array]:
    names = ("subword_ids", "subword_starts", "subword_ends")
    nothing = np.zeros(0, dtype=np.int64)
    flat = FlatEncoding(nothing, nothing, nothing, np.zeros(len(windows) + 1, dtype=np.int64))
    if vocabulary is not None:
        flat = vocabulary.encode_flat([window.text for window in windows])
    return {name: _lists(name, value, flat.offsets) for name, value in zip(names, flat[:3], strict=True)}


def _sentence_columns(windows: Sequence[Window]) -> dict[str, pa.Array]:
    starts = [window.sentence_starts for window in windows]
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *starts])
    return {"sentence_starts": _lists("sentence_starts", flat, cumulate([len(row) for row in starts]))}


def _lists(name: str, values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    kind = COLUMN_TYPES[name]
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(values.astype(_NUMPY_TYPES[name], copy=False)), type=kind
    )


_NUMPY_TYPES = {
    # Arrow's own conversion would import pandas.
    name: np.dtype(str(kind.value_type))
    for name, kind in COLUMN_TYPES.items()
    if pa.types.is_list(kind)
}
