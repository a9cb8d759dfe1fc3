"""Files of examples: read whole, unpacked by their name, decoded strictly; what cannot be says where and why."""

from __future__ import annotations

import codecs
import lzma
import posixpath
import re
import zlib
from collections.abc import Sequence
from typing import cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.preprocess.common.addresses import check_address, check_is_stored
from tokenfree.preprocess.common.errors import UserError

PACKED = (".gz", ".xz", ".bz2")
_SHOWN = 60  # characters of a value in a message
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


def read_bytes(path: str) -> bytes:
    """The content of a file of any fsspec address, unpacked if its name ends in .gz, .xz or .bz2.

    Raises:
        UserError: there is none, it cannot be read or unpacked, or nothing is in it.
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
        with fs.open(inner, "rb", compression=compression) as file:
            data = bytes(file.read())
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"{path}: cannot be read ({said}); check that it is whole and may be read") from error
    if not data.strip():
        raise UserError(f"{path}: nothing is in this file; give one with examples")
    return data


def read_lines(path: str, encoding: str | None = None) -> list[str]:
    """The lines of a text file without their ends (LF or CRLF, or CR where there is no LF); the first is line 1.

    Args:
        path: of any fsspec address.
        encoding: a codec of Python; UTF-8 by default, with or without byte order mark.

    Raises:
        UserError: it cannot be read, or a byte is not of this encoding.
    """
    return split_lines(read_text(path, encoding))


def read_text(path: str, encoding: str | None = None) -> str:
    """A text file of lines, decoded; CR becomes LF where no line ends with LF. See `read_lines`.

    Raises:
        UserError: it cannot be read, or a byte is not of this encoding.
    """
    text = decode(path, read_bytes(path), encoding)
    return text if "\n" in text else text.replace("\r", "\n")


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
        raise UserError(f"encoding: Python knows no {shown(name)}; give one such as utf-8, latin-1 or cp1252") from None
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line += data[:start].decode(name, errors="ignore").count("\n")
        what = f"byte 0x{data[start]:02x} is not {name}" if start < len(data) else f"this is not {name}"
        remedy = "mend the line, or give the file's encoding, such as cp1252"
        raise UserError(f"{path}: line {line}: {what}; {remedy}") from None


def whole_characters(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON and UTF-7 can spell and UTF-8 cannot hold."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def split_lines(text: str) -> list[str]:
    """Lines of a file: they end with LF or CRLF alone, not with the other line ends that a text may hold."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]
