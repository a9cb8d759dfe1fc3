"""Text files of examples: opened and unpacked by their name, decoded strictly, and read line by line."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import lzma
import posixpath
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import UserError
from tokenfree.core.storage import check_address, check_is_stored

PACKED = (".gz", ".xz", ".bz2")


# A packed file of a few kB can hold a line of any length. Training and development sets with a line of this length are
# read, cut into windows and evaluated in 1.3 GB.
MAX_CHARACTERS = 10_000_000


_SHOWN = 60  # characters of a value in a message


_BLOCK = 1 << 20  # bytes that are hashed at once


_SURROGATES = re.compile("[\ud800-\udfff]")


_UNREADABLE = (OSError, EOFError, ValueError, ImportError, zlib.error, lzma.LZMAError)


def shown(value: object) -> str:
    """A value for a message: quoted, on one line, its beginning if it is long."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def base_name(path: str) -> str:
    """The name of a file without its folders and without the ending of its compression, such as `dev.tsv`."""
    name = posixpath.basename(path)
    return next((name.removesuffix(ending) for ending in PACKED if name.lower().endswith(ending)), name)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The name of each file in the keys of its examples: as many of its folders as tell it from the others, if any."""
    depth = 1
    names = {path: base_name(path) for path in paths}
    while len(set(names.values())) < len(names) and depth < max(path.count("/") for path in names) + 1:
        depth += 1
        names = {path: "/".join([*path.split("/")[-depth:-1], base_name(path)]) for path in names}
    return names if len(set(names.values())) == len(names) else {path: path for path in names}


def exists(path: str) -> bool:
    """Whether there is a file of this name, as far as can be told."""
    try:
        fs, inner = url_to_fs(path)
        return bool(fs.isfile(inner))
    except _UNREADABLE:
        return False


@contextlib.contextmanager
def opened(path: str, mode: str = "rb", **text: str) -> Iterator[IO[Any]]:
    """Open a file of any fsspec address, unpacked if its name ends in .gz, .xz or .bz2.

    Args:
        path: of the file.
        mode: `rb` or `r`.
        text: encoding, errors and newline of `r`.

    Raises:
        UserError: there is none, or it cannot be read or unpacked.
    """
    if not path.strip():  # a variable of a shell that is not set; fsspec would take it for the working directory
        raise UserError("a path is empty; give a file of examples")
    check_address(path)
    compression = "infer" if path.lower().endswith(PACKED) else None
    try:
        fs, inner = url_to_fs(path)
        if isinstance(cast(object, fs), LocalFileSystem):  # fs itself stays of any kind
            check_is_stored(inner)
        if fs.isdir(inner):
            raise UserError(f"{path}: this is a folder; give the files in it, or hf:{path} if it is a dataset")
        with fs.open(inner, mode, compression=compression, **text) as file:
            yield cast(IO[Any], file)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"{path}: cannot be read ({said}); check that it is whole and may be read") from error


def read_bytes(path: str) -> bytes:
    """Return the content of a file; see `opened`.

    Raises:
        UserError: it cannot be read, or nothing is in it.
    """
    with opened(path) as file:
        data = bytes(file.read())
    if not data or data.isspace():
        raise _empty(path)
    return data


def hash_of(path: str) -> bytes:
    """Return BLAKE2b of the content of a file; see `opened`.

    Raises:
        UserError: it cannot be read, or nothing is in it.
    """
    digest, is_empty = hashlib.blake2b(), True
    with opened(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            is_empty = is_empty and block.isspace()
    if is_empty:
        raise _empty(path)
    return digest.digest()


def read_lines(path: str, encoding: str | None = None, *, errors: str = "strict", ends: bool = False) -> Iterator[str]:
    """Yield the lines of a text file, one by one; they end with LF or CRLF, or with CR where there is no LF.

    A line that begins with [ may be longer than `MAX_CHARACTERS`: it may be a list of all examples.

    Args:
        path: of any fsspec address.
        encoding: a codec of Python; UTF-8 by default, with or without byte order mark.
        errors: what becomes of other bytes, as in `open`.
        ends: whether lines keep their ends.

    Raises:
        UserError: it cannot be read, a byte is not of this encoding, a line is too long, or nothing is in the file.
    """
    name, number, is_empty = encoding or "utf-8", 0, True
    try:
        "".encode(name)
    except LookupError:
        raise _unknown(name) from None
    with opened(path, "r", encoding=name, errors=errors, newline="\n") as file:
        try:
            while line := file.readline(MAX_CHARACTERS + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix("\ufeff")
                if len(line) > MAX_CHARACTERS and not line.lstrip().startswith("["):
                    raise _too_long(f"{path}: line {number}")
                if not line.endswith("\n"):
                    line += file.readline()
                is_empty = is_empty and (not line or line.isspace())
                if name != "utf-8":
                    line = whole_characters(line)
                if number == 1 and "\r" in line and "\n" not in line:
                    yield from (f"{one}\n" if ends else one for one in line.removesuffix("\r").split("\r"))
                    continue
                if not ends:
                    line = line.removesuffix("\n").removesuffix("\r")
                yield line
        except UnicodeError as error:
            raise _undecodable(path, number + 1, name, error) from None
    if is_empty:
        raise _empty(path)


def decode(path: str, data: bytes, encoding: str | None = None, line: int = 1) -> str:
    """The text of bytes that begin at a line of a file.

    Raises:
        UserError: a byte is not of this encoding, or there is no such encoding.
    """
    name = encoding or "utf-8"
    try:
        codecs.lookup(name)
        text = data.decode(name).removeprefix("\ufeff")
        return text if name == "utf-8" else whole_characters(text)
    except LookupError:
        raise _unknown(name) from None
    except UnicodeError as error:
        raise _undecodable(path, line, name, error) from None


def check_length(text: str, place: str) -> None:
    """See that a text is not longer than `MAX_CHARACTERS`.

    Raises:
        UserError: it is.
    """
    if len(text) > MAX_CHARACTERS:
        raise _too_long(place)


def whole_characters(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON and UTF-7 can spell and UTF-8 cannot hold."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _too_long(place: str) -> UserError:
    return UserError(f"{place}: longer than {MAX_CHARACTERS:,} characters; split the text into several examples")


def _empty(path: str) -> UserError:
    return UserError(f"{path}: nothing is in this file; give one with examples")


def _unknown(encoding: str) -> UserError:
    known = "give one such as utf-8, latin-1 or cp1252"
    return UserError(f"encoding: Python knows no {shown(encoding)}; {known}")


def _undecodable(path: str, line: int, encoding: str, error: UnicodeError) -> UserError:
    """What is wrong with bytes that begin at a line of a file."""
    what = f"this is not {encoding}"
    if isinstance(error, UnicodeDecodeError) and error.start < len(error.object):
        line += error.object[: error.start].decode(encoding, errors="ignore").count("\n")
        what = f"byte 0x{error.object[error.start]:02x} is not {encoding}"
    remedy = "mend the line, or give the file's encoding, such as cp1252"
    if "start with BOM" in str(error):  # of utf-16 and utf-32, whose byte order is not guessed
        what, remedy = "there is no byte order mark", f"give {encoding}-le or {encoding}-be as encoding"
    return UserError(f"{path}: line {line}: {what}; {remedy}")
