"""Make large dumps from small ones: real pages repeated, each with a new id and a new first line."""

from __future__ import annotations

import bz2
import functools
import gzip
import itertools
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

XZ_WINDOW = 64 << 20
PAGES_IN_STREAM = 100  # as in the dumps of Wikipedia
_PAGE = re.compile(rb" *<page>.*?</page>\n?", re.DOTALL)
_TITLE = re.compile(rb"(?<=<title>)[^<]*")
_ID = re.compile(rb"(?<=<id>)\d+")
_NAMESPACE = re.compile(rb"(?<=<ns>)\d+")
_TALK = b"1"  # namespace of talk pages, which no job keeps
_TEXT = re.compile(rb"<text[^>]*[^/>]>")
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int:
    """Return the bytes of a number with KB, MB or GB.

    Raises:
        ValueError: The unit is missing or unknown.
    """
    number, unit = text[:-2], text[-2:].upper()
    if unit not in _UNITS:
        raise ValueError(f"{text!r} is no size; write for example 200MB")
    return round(float(number) * _UNITS[unit])


def write_repeated(dump: Path, size: int, target: Path) -> int:
    """Write a multistream bz2 dump of about `size` bytes of XML, and return the number of pages.

    All of `dump` is held in memory. No two articles have the same text, so that none is dropped as a
    duplicate.
    """
    head, pages = _read(dump)
    number = 0
    with target.open("wb") as file:
        file.write(bz2.compress(head))
        for stream in _streams(_repeat(pages), size):
            number += len(stream)
            file.write(bz2.compress(b"".join(stream)))
        file.write(bz2.compress(b"</mediawiki>\n"))
    return number


def write_single_stream(dump: Path, size: int, target: Path, one_article_in: int = 1) -> int:
    """Write the dump of `write_repeated` in one stream, compressed according to its name.

    Return the number of pages. In all but one of every `one_article_in` rounds through the pages, the pages
    are talk pages, which a job skips.
    """
    head, pages = _read(dump)
    talk = [_NAMESPACE.sub(_TALK, page, count=1) for page in pages]
    number = 0
    with open_stream(target) as file:
        file.write(head)
        for stream in _streams(_repeat(pages, *[talk] * (one_article_in - 1)), size):
            number += len(stream)
            file.write(b"".join(stream))
        file.write(b"</mediawiki>\n")
    return number


def open_stream(path: Path) -> Any:
    """Open a file for writing, compressed in one stream if its name ends in .gz, .bz2, .xz or .zst."""
    if path.suffix == ".zst":
        return pa.CompressedOutputStream(str(path), "zstd")
    openers = {".gz": functools.partial(gzip.open, compresslevel=6), ".bz2": bz2.open, ".xz": _open_xz}
    return openers.get(path.suffix, open)(path, "wb")


def _open_xz(path: Path, mode: Literal["wb"]) -> lzma.LZMAFile:
    """Open an xz file that is fast to write and has the largest window of `xz`'s presets, which a reader must hold."""
    return lzma.LZMAFile(path, mode, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": XZ_WINDOW}])


def _read(dump: Path) -> tuple[bytes, list[bytes]]:
    """Return what precedes the first page of a dump, and its pages."""
    xml = bz2.decompress(dump.read_bytes()) if dump.suffix == ".bz2" else dump.read_bytes()
    pages = _PAGE.findall(xml)
    if not pages:
        raise ValueError(f"{dump}: there is no page in it")
    return xml[: xml.index(pages[0])], pages


def _repeat(*rounds: list[bytes]) -> Iterator[bytes]:
    for copy, pages in enumerate(itertools.cycle(rounds)):
        for index, page in enumerate(pages):
            number = copy * len(pages) + index + 1
            page = _TITLE.sub(lambda title, copy=copy: b"%s (%d)" % (title[0], copy), page, count=1)
            page = _ID.sub(b"%d" % number, page, count=1)
            head = b"This is page %d, which is copy %d of another one.\n\n" % (number, copy)
            # A redirect must be at the beginning of the text.
            yield (
                page
                if b"<redirect" in page
                else _TEXT.sub(lambda tag, head=head: tag[0] + head, page, count=1)
            )


def _streams(pages: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while size > 0:
        stream: list[bytes] = []
        while len(stream) < PAGES_IN_STREAM and size > 0:
            stream.append(next(pages))
            size -= len(stream[-1])
        yield stream
