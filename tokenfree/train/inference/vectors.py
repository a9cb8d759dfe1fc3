"""The texts of a corpus and their vectors: shards of texts, windows of long texts, rows of Arrow.

D width, n vectors of a text: 1, its words, or its characters
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import itertools
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import fsspec
import numpy as np
import pyarrow as pa

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage, check_address, check_is_stored
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.preprocess.text.sentences import cut, sentence_starts
from tokenfree.train.batches.words import NOWHERE, text_words
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.inference.text_encoder import Encoded, TextEncoder

VectorsOf = Literal["texts", "words", "characters"]
SHARD_CHARACTERS = {"texts": 1 << 18, "words": 1 << 16, "characters": 1 << 16}  # 200 MB of vectors of width 768
SHARD_TEXTS = 4096


class Part(NamedTuple):
    """The texts of one shard."""

    number: int  # of the shard, from 0
    first: int  # the number of its first text in the corpus, from 0
    texts: list[str]

    @property
    def sha256(self) -> str:
        """Of the texts and where they are cut."""
        digest = hashlib.sha256()
        for text in self.texts:
            content = text.encode()
            digest.update(b"%d\n" % len(content) + content)
        return digest.hexdigest()


def parts(texts: Iterable[str], vectors: VectorsOf) -> Iterator[Part]:
    """Consecutive texts together until they have enough characters, or are enough texts."""
    number = first = size = 0
    held: list[str] = []
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= SHARD_CHARACTERS[vectors] or len(held) == SHARD_TEXTS:
            yield Part(number, first, held)
            number, first, size, held = number + 1, first + len(held), 0, []
    if held:
        yield Part(number, first, held)


_AT_ONCE = 1000  # rows of a record batch, as in data directories


def schema(vectors: VectorsOf, width: int) -> pa.Schema:
    """The columns: `number` (of the text in the corpus, from 0), `text`, `windows` (in how many it was read), and
    `vector` of a text, else `vectors`, with `word_starts` and `word_ends` (codepoint offsets) those of its words.
    """
    vector = pa.list_(pa.float32(), width)
    own: list[tuple[str, pa.DataType]] = [("vector", vector)] if vectors == "texts" else [("vectors", pa.list_(vector))]
    if vectors == "words":
        own = [("word_starts", pa.list_(pa.int32())), ("word_ends", pa.list_(pa.int32())), *own]
    return pa.schema([("number", pa.int64()), ("text", pa.string()), ("windows", pa.int32()), *own])


def write(path: str, part: Part, found: Sequence[TextVectors], vectors: VectorsOf) -> None:
    """Write the rows of a part of the corpus as an Arrow stream."""
    width = found[0].vectors_ND.shape[1]
    all_ND = np.concatenate([each.vectors_ND for each in found])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(all_ND).reshape(-1)), width)
    offsets = pa.array(np.cumsum([0, *(len(each.vectors_ND) for each in found)]), pa.int32())
    columns: dict[str, pa.Array] = {
        "number": pa.array(range(part.first, part.first + len(part.texts)), pa.int64()),
        "text": pa.array(part.texts, pa.string()),
        "windows": pa.array([each.num_windows for each in found], pa.int32()),
    }
    if vectors == "texts":
        columns["vector"] = flat
    else:
        columns["vectors"] = pa.ListArray.from_arrays(offsets, flat)
        for name, edges in (
            ("word_starts", [each.starts_N for each in found]),
            ("word_ends", [each.ends_N for each in found]),
        ):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(edges), pa.int32()))
    wanted = schema(vectors, width)
    table = pa.Table.from_arrays([columns[name] for name in wanted.names], schema=wanted)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, wanted) as writer:
        writer.write_table(table, max_chunksize=_AT_ONCE)


STANDARD_INPUT = "-"
_JSON = (".jsonl", ".ndjson")
_PACKED = (".gz", ".bz2", ".xz")
_UNREADABLE = (OSError, EOFError, ValueError, ImportError, zlib.error, lzma.LZMAError)


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """The texts of a file (a path or any fsspec address), of standard input (`-`), or of a data directory.

    A file has a text a line, an empty line being an empty text; one whose name ends in .jsonl or .ndjson has a JSON
    object a line; either may be packed (.gz, .bz2, .xz). Of a data directory all windows are read, split by split, in
    the order of its shards.

    Args:
        source: where they are.
        field: of a JSON object, that holds the text.

    Raises:
        UserError: there is no such file, it cannot be read, a line is not UTF-8, or has no such field.
    """
    if source == STANDARD_INPUT:
        return _lines(sys.stdin.buffer, "standard input")
    if _is_data(source):
        return _texts_of_windows(source)
    lines = _file_lines(source)
    name = source.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return _of_objects(lines, source, field) if name.endswith(_JSON) else lines


def _is_data(source: str) -> bool:
    try:
        return Storage.at(source).size(MANIFEST) is not None
    except NotADirectoryError:
        return False


def _file_lines(path: str) -> Iterator[str]:
    check_address(path)
    check_is_stored(path.removeprefix("file://"))
    try:
        with fsspec.open(path, "rb", compression="infer") as file:
            yield from _lines(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file or data directory") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder, and no data directory (it has no {MANIFEST}); give a file") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _lines(file: Any, name: str) -> Iterator[str]:
    """The lines of an open file of bytes, without their ends: LF or CRLF, or CR where there is no LF."""
    first = next(file, b"")
    start = [first] if first.endswith(b"\n") else first.removesuffix(b"\r").split(b"\r")
    for number, line in enumerate(itertools.chain(start if first else [], file), 1):
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            content = content.removeprefix(codecs.BOM_UTF8)
        try:
            yield content.decode()
        except UnicodeDecodeError:
            raise UserError(f"{name}:{number}: not UTF-8; convert the file") from None


def _of_objects(lines: Iterable[str], path: str, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{path}:{number}: not JSON; give a JSON object a line") from None
        text = values.get(field) if isinstance(values, dict) else None
        if not isinstance(text, str):
            has = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else "is no object"
            raise UserError(f"{path}:{number}: no text in the field {field!r} (the line {has}); name another: --field")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{path}:{number}: half of a surrogate pair, which is no character; remove it") from None
        yield text


def _texts_of_windows(data: str) -> Iterator[str]:
    for split in load_manifest(data).splits:
        reader = ShardReader(data, split)
        for number, entry in enumerate(reader.shards):
            shard = reader.shard(number)
            for row in range(entry.rows):
                yield bytes(shard.row("text", row)).decode()


def spans(text: str, most: int) -> list[tuple[int, int]]:
    """Codepoint spans of at most `most` characters, each beginning where the one before ends; at least one.

    They begin at sentences where possible, else at words, as the windows of training do.
    """
    if len(text) <= most:
        return [(0, len(text))]
    starts = [start for start, _ in cut(text, sentence_starts(text).astype(np.int64), most)]
    edges = [0]
    for edge in [*starts[1:], len(text)]:
        while edge - edges[-1] > most:  # white space behind a full window
            edges.append(edges[-1] + most)
        if edge > edges[-1]:
            edges.append(edge)
    return list(pairwise(edges))


Pooling = Literal["mean", "cls", "cls_max", "pooled"]
_POSITIONS = 8192  # of a batch, as many as its longest window has in each
_MOST_WINDOWS = 64  # of a batch


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which vectors are wanted.

    Attributes:
        vectors: of what.
        pooling: of texts, which one; see `tokenfree.train.inference.text_encoder.Encoded`.
        windowed: whether texts longer than the model reads are cut into windows; else they are refused.
    """

    vectors: VectorsOf = "texts"
    pooling: Pooling = "mean"
    windowed: bool = True


class TextVectors(NamedTuple):
    """What was found of a text."""

    vectors_ND: np.ndarray  # float32
    starts_N: np.ndarray  # int64: the first character of each, as a codepoint offset
    ends_N: np.ndarray  # int64: the character after the last
    num_windows: int  # in which the text was read


class _Window(NamedTuple):
    text: int  # number in the part
    start: int
    end: int


def width_of(encoder: TextEncoder, wanted: Wanted) -> int:
    """D.

    Raises:
        UserError: the encoder reads no texts, or did not train what is wanted.
    """
    found = encoder(["a"])
    if wanted.vectors == "texts" and wanted.pooling == "pooled" and not found.pooled_is_trained:
        raise UserError("--pooling pooled: this run did not train that layer, a random projection; take mean or cls")
    return _of_window(found, 0, "a", wanted)[0].shape[1]


def text_vectors(encoder: TextEncoder, part: Part, wanted: Wanted) -> list[TextVectors]:
    """The vectors of each text of a part of the corpus.

    Which windows are encoded together follows from the part alone: they go by length, and as many make a batch as fit.

    Raises:
        UserError: a text is longer than the model reads, where that is refused.
    """
    windows = list(_windows(encoder, part, wanted))
    found: dict[_Window, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for batch in _batches(windows):
        texts = [part.texts[window.text][window.start : window.end] for window in batch]
        encoded = encoder(texts)
        for row, (window, text) in enumerate(zip(batch, texts, strict=True)):
            vectors, starts, ends = _of_window(encoded, row, text, wanted)
            found[window] = vectors, starts + window.start, ends + window.start
    of_text: list[list[_Window]] = [[] for _ in part.texts]
    for window in windows:
        of_text[window.text].append(window)
    return [_joined([found[window] for window in own], wanted) for own in of_text]


def _windows(encoder: TextEncoder, part: Part, wanted: Wanted) -> Iterator[_Window]:
    most = encoder.max_characters
    for number, text in enumerate(part.texts):
        if len(text) > most and not wanted.windowed:
            raise UserError(
                f"text {part.first + number + 1} has {len(text):,} characters and this model reads {most:,}; cut it, "
                "or leave out --long refuse: it is then read in windows"
            )
        yield from (_Window(number, start, end) for start, end in spans(text, most))


def _batches(windows: Sequence[_Window]) -> Iterator[list[_Window]]:
    """Windows of about the same length together, the longest first."""
    batch: list[_Window] = []
    for window in sorted(windows, key=lambda window: (window.start - window.end, window)):
        if batch:
            positions = (len(batch) + 1) * (batch[0].end - batch[0].start + 2)
            if len(batch) == _MOST_WINDOWS or positions > _POSITIONS:
                yield batch
                batch = []
        batch.append(window)
    if batch:
        yield batch


def _of_window(encoded: Encoded, row: int, text: str, wanted: Wanted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The vectors of one row of a batch, with the first character of each and the one after its last."""
    if wanted.vectors == "texts":
        pooled = getattr(encoded, wanted.pooling)[row : row + 1].float().cpu().numpy()
        return pooled, np.zeros(1, np.int64), np.array([len(text)])
    characters = encoded.characters[row, 1 : 1 + len(text)].float().cpu().numpy()
    if wanted.vectors == "characters":
        return characters, np.arange(len(text)), np.arange(1, len(text) + 1)
    starts, ends = _words(text)
    if encoded.words is not None:
        return encoded.words[row, 1 : 1 + len(starts)].float().cpu().numpy(), starts, ends
    means = [characters[start:end].mean(axis=0) for start, end in zip(starts, ends, strict=True)]
    return np.array(means, np.float32).reshape(-1, characters.shape[1]), starts, ends


def _words(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The first character of each word, and the one after its last, int64; see `text_words`."""
    word_of = text_words(text).word_of
    inside = np.flatnonzero(word_of != NOWHERE)
    names, first = np.unique(word_of[inside], return_index=True)
    last = np.searchsorted(word_of[inside], names, side="right") - 1
    return inside[first], inside[last] + 1


def _joined(windows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], wanted: Wanted) -> TextVectors:
    """Those of the windows of a text one after another; of the text as a whole their mean by characters."""
    vectors, starts, ends = (np.concatenate(part) for part in zip(*windows, strict=True))
    if wanted.vectors == "texts" and len(windows) > 1:
        share = ((ends - starts) / (ends - starts).sum()).astype(np.float32)
        vectors, starts, ends = (vectors * share[:, None]).sum(axis=0, keepdims=True), starts[:1], ends[-1:]
    return TextVectors(vectors, starts, ends, len(windows))
