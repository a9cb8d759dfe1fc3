"""Files on any fsspec URL: what the user's paths stand for, in which version, and their hashes."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, cast

import fsspec
from fsspec.core import has_magic, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.preprocess.common.addresses import check_address, check_is_stored
from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import hash_stream
from tokenfree.preprocess.sources.inputs.linked_files import LinksFollowed, told

_KINDS = {
    "wikipedia": "dumps (*.xml, *.xml.bz2, *.xml.gz, *.xml.xz or *.xml.zst)",
    "books": "books (*.txt or *.jsonl, also compressed, or *.parquet)",
}
READ_BYTES = 1 << 18  # a block of stored bytes: about one bz2 block of 900 kB of text


@dataclass(frozen=True)
class InputFile:
    """One file that the user's paths stand for; `name` is its path below the folder or the glob that found it.

    `size` is in bytes (of a dataset: in rows); `modified` is whatever the store says about the last change (an ETag, a
    time), empty where it says nothing.
    """

    path: str
    name: str
    size: int
    modified: str

    @property
    def version(self) -> str:
        """Changes with the content, as far as the store tells without reading it."""
        return f"{self.size}:{self.modified}"


def open_input(path: str) -> IO[bytes]:
    """The file, open for reading; remote ones are read ahead in blocks and never held whole.

    Raises:
        OSError: it cannot be opened.
    """
    fs, inner = url_to_fs(path)
    return fs.open(inner, "rb")  # pyright: ignore[reportReturnType]  fsspec's own file type is no IO for pyright


def list_inputs(
    paths: Iterable[str],
    field: str,
    wanted: Callable[[str], bool],
    output: str | None = None,
    notice: Callable[[str], None] = print,
) -> list[InputFile]:
    """The files that `paths` (files, folders, globs, fsspec URLs) stand for, each once, sorted by path.

    Folders are searched through, and links in them followed; of those and of globs only file names that are `wanted`
    count, while a path of one file is taken as it is. What lies in the directory `output` is no input of a folder or
    glob around it. `notice` is told in a line of links that lead nowhere.

    Raises:
        UserError: a path stands for no file, or cannot be looked at; the message names `field` and the path.
    """
    found: dict[str, InputFile] = {}
    for path in paths:
        check_address(path, field)
        try:
            files = _expand(path, field, wanted, output, notice)
        except UserError:
            raise
        except Exception as error:
            # Libraries behind remote file systems have error classes of their own, for credentials above all.
            if not isinstance(error, (OSError, ValueError, ImportError)) and not _is_remote_error(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{field}: cannot list {path}: {reason}") from error
        for file in files:
            check_address(file.path, field)
            # The same file may be found by two paths; which one counts must not depend on which came first.
            place = _place(file.path)
            known = found.get(place)
            if known is None or _order(file, place) < _order(known, place):
                found[place] = file
    return _with_unique_names(sorted(found.values(), key=lambda file: file.path))


def _order(file: InputFile, place: str) -> tuple[bool, int, str, str]:
    """Of the paths of one file the smallest counts: itself before links to it, then the shorter name."""
    return file.path != place, len(file.name), file.name, file.path


def _place(path: str) -> str:
    """Where an input lies, without the links that lead there."""
    return os.path.realpath(path) if path.startswith("/") else path


def _expand(
    path: str, field: str, wanted: Callable[[str], bool], output: str | None, notice: Callable[[str], None]
) -> list[InputFile]:
    if not path.strip():  # a variable of a shell that is not set; fsspec would take it for the working directory
        raise UserError(f"{field}: a path is empty; give {_KINDS[field]}, or a folder or glob of them")
    fs, inner = url_to_fs(path)
    broken, closed = list[str](), list[str]()
    if isinstance(cast(object, fs), LocalFileSystem):  # fs itself stays of any kind
        check_is_stored(inner, field)
        fs = cast(Any, LinksFollowed())
        broken, closed = fs.broken, fs.closed
    if has_magic(inner) and not fs.exists(inner):
        root = posixpath.dirname(inner[: min(inner.find(sign) for sign in "*?[" if sign in inner)])
        infos = [info for info in fs.glob(inner, detail=True).values() if wanted(posixpath.basename(info["name"]))]
        hint = "matches no"
    elif fs.isdir(inner):
        root = inner.rstrip("/")
        infos = [info for info in fs.find(inner, detail=True).values() if wanted(posixpath.basename(info["name"]))]
        hint = "is a folder without"
    elif fs.exists(inner):
        root, infos, hint = posixpath.dirname(inner), [fs.info(inner)], ""
    else:
        raise UserError(f"{field}: no such file: {path}; give {_KINDS[field]}, or a folder or glob of them")
    if closed:
        raise UserError(f"{field}: {closed[0]}: no right to look into this folder; allow it, or give what else to read")
    files = [_input_file(fs, info, root) for info in infos if info["type"] == "file"]
    if hint and output is not None:
        own = f"{_place(output.rstrip('/'))}/"
        files = [file for file in files if not _place(file.path).startswith(own)]
    if broken:
        notice(told(broken, field))
    if not files:
        raise UserError(f"{field}: {path} {hint} {_KINDS[field]}")
    return files


def _is_remote_error(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("botocore", "aiohttp", "gcsfs", "google")


def _input_file(fs: fsspec.AbstractFileSystem, info: Mapping[str, Any], root: str) -> InputFile:
    inner = str(info["name"])
    name = posixpath.relpath(inner, root) if root else inner.lstrip("/")
    # Whatever the store says about the last change; object stores have an ETag, files a time.
    stamp = next(
        (info[key] for key in ("ETag", "etag", "mtime", "LastModified", "updated", "created") if key in info), ""
    )
    return InputFile(
        path=inner if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(inner)),
        name=name,
        size=int(info["size"] or 0),
        modified=str(stamp),
    )


def _with_unique_names(files: list[InputFile]) -> list[InputFile]:
    """Two folders may hold files of one name; those files are named by their whole path."""
    counts: dict[str, int] = {}
    for file in files:
        counts[file.name] = counts.get(file.name, 0) + 1
    return [replace(file, name=file.path) if counts[file.name] > 1 else file for file in files]


def read_range(file: IO[bytes], start: int, end: int | None = None) -> Iterator[bytes]:
    """The bytes `[start, end)` of an open file, to its end by default, block by block."""
    file.seek(start)
    left = end - start if end is not None else None
    while left is None or left > 0:
        block = file.read(READ_BYTES if left is None else min(left, READ_BYTES))
        if not block:
            return
        if left is not None:
            left -= len(block)
        yield block


def hash_file_input(file: InputFile) -> tuple[int, str]:
    """Size in bytes and SHA-256 (hex) of a file, read block by block.

    Raises:
        OSError: it cannot be read.
        JobError: it changed since it was found, or while it was read.
    """
    before = _look_again(file)
    with open_input(file.path) as opened:
        sha256 = hash_stream(opened)
        size = opened.tell()
    # Where stores tell other things of a file in a list than of the file alone, only its own two versions compare.
    found = file.version if isinstance(url_to_fs(file.path)[0], LocalFileSystem) else before
    changed = (file.size and size != file.size) or not found == before == _look_again(file)
    if changed:
        raise JobError(f"{file.path}: changed while it was read; give the same command again")
    return size, sha256


def _look_again(file: InputFile) -> str:
    """The version of a file at this moment."""
    fs, inner = url_to_fs(file.path)
    fs.invalidate_cache()
    return _input_file(fs, fs.info(inner), "").version
