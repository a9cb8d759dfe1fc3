"""Files of texts: opened, decompressed by their name, decoded strictly, and read line by line."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import lzma
import posixpath
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import UserError
from tokenfree.core.storage import check_address, check_is_stored
from tokenfree.core.stored_files import checked

PACKED = (".gz", ".xz", ".bz2")
JSON_LINES = (".jsonl", ".ndjson")
# A compressed file of a few kB can contain a line of any length. Reading, windowing and evaluating training and
# development sets with a line of this length takes 1.3 GB.
MAX_CHARACTERS = 10_000_000
_SHOWN = 60  # maximum characters of a value in a message
_BLOCK = 1 << 20  # bytes that are hashed at once
_SURROGATES = re.compile("[\ud800-\udfff]")
_UNREADABLE = (OSError, EOFError, ValueError, ImportError, zlib.error, lzma.LZMAError)


def shown(value: object) -> str:
    """Return a value for a message: quoted, on one line, and shortened if it is long."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def base_name(path: str) -> str:
    """Return the name of a file without folders and without the ending of its compression, such as `dev.tsv`."""
    name = posixpath.basename(path)
    return next((name.removesuffix(ending) for ending in PACKED if name.lower().endswith(ending)), name)


def exists(path: str) -> bool:
    try:
        fs, inner = url_to_fs(path)
        return bool(fs.isfile(inner))
    except _UNREADABLE:
        return False


@contextlib.contextmanager
def opened(path: str, mode: str = "rb", **text: str) -> Iterator[IO[Any]]:
    """Open a file of any fsspec address. Decompress it if its name ends in .gz, .xz or .bz2.

    `text` are further arguments of `open`.

    Raises:
        UserError: The file does not exist, or it cannot be read or decompressed.
    """
    if not path.strip():  # an unset shell variable; fsspec would use the working directory
        raise UserError("a path is empty. Give a file.")
    check_address(path)
    compression = "infer" if path.lower().endswith(PACKED) else None
    try:
        fs, inner = url_to_fs(path)
        if isinstance(cast(object, fs), LocalFileSystem):  # the cast keeps the type checker from narrowing fs
            check_is_stored(inner)
        if fs.isdir(inner):
            raise UserError(f"{path}: this is a folder. Give the files in it, or hf:{path} if it is a dataset.")
        with fs.open(inner, mode, compression=compression, **text) as file:
            yield cast(IO[Any], file)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file. Check the path.") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"{path}: cannot be read ({said}). Check that it is complete and readable.") from error


def read_bytes(path: str) -> bytes:
    """Return the content of a file.

    Raises:
        UserError: The file cannot be read or is empty.
    """
    with opened(path) as file:
        data = bytes(file.read())
    if not data or data.isspace():
        raise _empty(path)
    return data


def hash_of(path: str) -> bytes:
    """Return the BLAKE2b digest of a file's content.

    Raises:
        UserError: The file cannot be read or is empty.
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
    """Yield the lines of a text file of any fsspec address, as `lines_of` does.

    Raises:
        UserError: The file cannot be read or is empty, a byte is invalid in this encoding, or a line is too long.
    """
    name, is_empty = encoding or "utf-8", True
    try:
        "".encode(name)
    except LookupError:
        raise _unknown(name) from None
    with opened(path, "r", encoding=name, errors=errors, newline="\n") as file:
        for line in lines_of(file, path, name, ends=ends):
            is_empty = is_empty and (not line or line.isspace())
            yield line
    if is_empty:
        raise _empty(path)


def lines_of(
    file: IO[str], path: str, encoding: str = "utf-8", *, ends: bool = False, limited: bool = True
) -> Iterator[str]:
    """Yield the lines of a file that was opened with LF as newline. Lines end with LF or CRLF, or CR if there is no LF.

    If `limited`, only a line that begins with [ may exceed `MAX_CHARACTERS`, because it may be a list of all examples.

    Raises:
        UserError: A byte is invalid in this encoding, or a line is too long.
    """
    number = 0
    try:
        while line := file.readline(MAX_CHARACTERS + 1 if limited else -1):
            number += 1
            if number == 1:
                line = line.removeprefix("\ufeff")
            if limited and len(line) > MAX_CHARACTERS and not line.lstrip().startswith("["):
                raise _too_long(f"{path}: line {number}")
            if not line.endswith("\n"):
                line += file.readline()
            if encoding != "utf-8":
                line = whole_characters(line)
            if number == 1 and "\r" in line and "\n" not in line:
                yield from (f"{one}\n" if ends else one for one in line.removesuffix("\r").split("\r"))
                continue
            if not ends:
                line = line.removesuffix("\n").removesuffix("\r")
            yield line
    except UnicodeError as error:
        raise _undecodable(path, number + 1, encoding, error) from None


def decode(path: str, data: bytes, encoding: str | None = None, line: int = 1) -> str:
    """Return the decoded text of bytes that begin at `line` of a file.

    Raises:
        UserError: A byte is invalid in this encoding, or there is no such encoding.
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


def parse_json(text: str | bytes, place: str) -> Any:
    """Return the value of a JSON text. `place` names it in messages.

    Raises:
        UserError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also for numbers with too many digits, and too many brackets
        raise UserError(f"{place}: no JSON ({error}). Fix it.") from None


def parse_form(form: Any, text: str | bytes, place: str) -> Any:
    """Return the value of a JSON text, checked against a type such as a TypedDict, with U+FFFD for lone surrogates.

    Raises:
        UserError: The text is not JSON, or its value has another type.
    """
    try:
        return checked(form, _whole(parse_json(text, place)))
    except ValueError as error:
        raise UserError(f"{place}: {error}. Check that this is a file for the task.") from None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def check_length(text: str, place: str) -> None:
    """Check that a text is not longer than `MAX_CHARACTERS`.

    Raises:
        UserError: The text is longer.
    """
    if len(text) > MAX_CHARACTERS:
        raise _too_long(place)


def whole_characters(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, which JSON and UTF-7 can express and UTF-8 cannot."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _too_long(place: str) -> UserError:
    return UserError(f"{place}: longer than {MAX_CHARACTERS:,} characters. Split the text into several examples.")


def _empty(path: str) -> UserError:
    return UserError(f"{path}: this file is empty. Give one with examples.")


def _unknown(encoding: str) -> UserError:
    return UserError(f"encoding: Python knows no {shown(encoding)}. Give one such as utf-8, latin-1 or cp1252.")


def _undecodable(path: str, line: int, encoding: str, error: UnicodeError) -> UserError:
    """Return an error for bytes that begin at `line` of a file."""
    what = f"this is not {encoding}"
    if isinstance(error, UnicodeDecodeError) and error.start < len(error.object):
        line += error.object[: error.start].decode(encoding, errors="ignore").count("\n")
        what = f"byte 0x{error.object[error.start]:02x} is not {encoding}"
    action = "Fix the line, or give the file's encoding, such as cp1252"
    if "start with BOM" in str(error):  # raised by utf-16 and utf-32, whose byte order is not guessed
        what, action = "there is no byte order mark", f"Give {encoding}-le or {encoding}-be as encoding"
    return UserError(f"{path}: line {line}: {what}. {action}.")
