"""Read a corpus to embed, and divide it into parts, each of which becomes a shard."""

import contextlib
import hashlib
import sys
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home, is_utf8
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.tasks.examples.files import JSON_LINES, base_name, lines_of, opened, parse_json

VectorsOf = Literal["texts", "words", "characters"]
# 200 MB of vectors of width 768.
SHARD_CHARACTERS = {"texts": 1 << 18, "words": 1 << 16, "characters": 1 << 16}
SHARD_TEXTS = 4096
STANDARD_INPUT = "-"


class Part(NamedTuple):
    number: int  # number of the shard, from 0
    first: int  # number of its first text in the corpus, from 0
    texts: list[str]

    @property
    def sha256(self) -> str:
        """Hash of the texts and of the boundaries between them."""
        digest = hashlib.sha256()
        for text in self.texts:
            content = text.encode()
            digest.update(b"%d\n" % len(content) + content)
        return digest.hexdigest()


def read_texts(source: AnyPath, field: str = "text") -> Iterator[str]:
    """Return the texts of a file (a path or any fsspec address), of standard input (`-`), or of a data directory.

    A file has one text per line; an empty line is an empty text. A file whose name ends in .jsonl or .ndjson
    has one JSON object per line, with the text in `field`. Both may be compressed (.gz, .bz2, .xz). Of a data
    directory, all windows are read in order. Raises UserError if there is no readable file, or a line is not
    UTF-8 or has no such field.
    """
    source = expand_home(source)
    if source == STANDARD_INPUT:
        return lines_of(sys.stdin.buffer, "standard input")
    with contextlib.suppress(NotADirectoryError):
        if Storage.at(source).size(MANIFEST) is not None:
            return _texts_of_windows(source)
    lines = _file_lines(source)
    return (
        _texts_of_objects(lines, source, field) if base_name(source).lower().endswith(JSON_LINES) else lines
    )


def _file_lines(path: str) -> Iterator[str]:
    with opened(path) as file:
        yield from lines_of(file, path)


def _texts_of_objects(lines: Iterable[str], path: str, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        values = parse_json(line, place)
        text = values.get(field) if isinstance(values, dict) else None
        if not isinstance(text, str):
            has = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else "is not an object"
            raise UserError(
                f"{place}: no text in the field {field!r} (the line {has}). Name another with --field."
            )
        if not is_utf8(text):
            raise UserError(f"{place}: half of a surrogate pair, which is not a character. Remove it.")
        yield text


def _texts_of_windows(data: str) -> Iterator[str]:
    for split in load_manifest(data).splits:
        reader = ShardReader(data, split)
        for number, entry in enumerate(reader.shards):
            shard = reader.shard(number)
            for row in range(entry.rows):
                yield bytes(shard.row("text", row)).decode()


def parts(texts: Iterable[str], vectors: VectorsOf) -> Iterator[Part]:
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
