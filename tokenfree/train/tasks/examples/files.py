"""Files of texts: opened, decompressed by their name, decoded as UTF-8, and read line by line."""

import contextlib
import hashlib
import json
import lzma
import posixpath
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import UserError, first_line
from tokenfree.core.files import AnyPath, expand_home, without_surrogates
from tokenfree.core.storage import check_address, check_is_stored
from tokenfree.core.stored_files import checked

PACKED = (".gz", ".xz", ".bz2")
JSON_LINES = (".jsonl", ".ndjson")
_MAX_VALUE_CHARACTERS = 60  # maximum characters of a value in a message
_UNREADABLE = (OSError, EOFError, ValueError, ImportError, zlib.error, lzma.LZMAError)


def quoted(value: object) -> str:
    """Return a value for a message: quoted, on one line, and shortened if it is long."""
    text = repr(value[: _MAX_VALUE_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}..."


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
def opened(path: AnyPath) -> Iterator[IO[bytes]]:
    """Open a file of any fsspec address, decompressed by its name. Raises UserError if it cannot be read."""
    path = expand_home(path)
    # An unset shell variable; fsspec would use the working directory.
    if not path.strip():
        raise UserError("a path is empty. Give a file.")
    check_address(path)
    try:
        fs, inner = url_to_fs(path)
        # The cast keeps the type checker from narrowing fs.
        if isinstance(cast(object, fs), LocalFileSystem):
            check_is_stored(inner)
        if fs.isdir(inner):
            raise UserError(
                f"{path}: this is a folder. Give the files in it, or hf:{path} if it is a dataset."
            )
        with fs.open(inner, "rb", compression="infer" if path.lower().endswith(PACKED) else None) as file:
            yield cast(IO[bytes], file)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file. Check the path.") from None
    except UserError:
        raise
    except _UNREADABLE as error:
        raise UserError(
            f"{path}: cannot be read ({first_line(error).rstrip('.')}). Check that it is complete and readable."
        ) from error


def hash_of(path: str) -> bytes:
    with opened(path) as file:
        return hashlib.file_digest(cast(Any, file), "blake2b").digest()


def read_lines(path: str, *, ends: bool = False, encodings: Sequence[str] = ("utf-8",)) -> Iterator[str]:
    """Yield the lines of a file, as `lines_of` does.

    Raises UserError if it is empty or cannot be read or decoded.
    """
    is_empty = True
    with opened(path) as file:
        for line in lines_of(file, path, ends=ends, encodings=encodings):
            is_empty = is_empty and (not line or line.isspace())
            yield line
    if is_empty:
        raise UserError(f"{path}: this file is empty. Give one with examples.")


def lines_of(
    file: Iterable[bytes], path: str, *, ends: bool = False, encodings: Sequence[str] = ("utf-8",)
) -> Iterator[str]:
    """Yield the lines of a file, which end with LF or CRLF. With `ends`, the ends are kept.

    Each line is decoded by the first of the `encodings` that fits it. In these, LF must be a single byte.
    Raises UserError if none fits a line.
    """
    for number, line in enumerate(file, 1):
        text = _decoded(line, encodings, f"{path}: line {number}")
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield text if ends else text.removesuffix("\n").removesuffix("\r")


def _decoded(line: bytes, encodings: Sequence[str], place: str) -> str:
    for encoding in encodings:
        with contextlib.suppress(UnicodeDecodeError):
            return line.decode(encoding)
    raise UserError(f"{place}: this is not {encodings[-1]}. Convert the file to UTF-8.")


def parse_json(text: str, place: str) -> Any:
    """Return the value of a JSON text. `place` names it in messages. Raises UserError if it is not JSON."""
    try:
        return json.loads(text)
    # Numbers with too many digits raise ValueError, too many brackets RecursionError.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: no JSON ({error}). Fix it.") from None


def parse_form(form: Any, text: str, place: str) -> Any:
    """Return a JSON value, with U+FFFD for lone surrogates.

    Raises UserError if it has another type than `form`.
    """
    value = parse_json(text, place)
    try:
        return checked(form, _whole(value))
    except ValueError as error:
        raise UserError(f"{place}: {error}. Check that this is a file for the task.") from None


def _whole(value: Any) -> Any:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value
