"""Wikipedia dumps: which of a dump's files are here already, whether there is room for the rest, and getting it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import hash_file
from tokenfree.preprocess.download.http_client import Absent, Client
from tokenfree.preprocess.download.mirror import Dump, DumpFile
from tokenfree.preprocess.download.partial_file import PartFile


@dataclass(frozen=True)
class Item:
    """A file to have at `path`; `size` in bytes where the server tells it, `have` of which are here already."""

    file: DumpFile
    path: Path
    state: Literal["whole", "begun", "damaged", "absent"]
    size: int | None
    have: int


@dataclass(frozen=True)
class Progress:
    """Bytes of all files here so far, of how many (None: unknown), and how many of them this command received."""

    name: str
    done: int
    total: int | None
    received: int


def plan(dumps: Sequence[Dump], folder: Path, client: Client) -> list[Item]:
    """What is to be done for each file of `dumps`; the SHA-1 of those that are in `folder` is checked.

    Raises:
        JobError: a file is listed, but the mirror does not have it.
    """
    return [_item(file, folder / file.name, client) for dump in dumps for file in dump.files]


def _item(file: DumpFile, path: Path, client: Client) -> Item:
    if path.exists():
        client.notice(f"{file.name}: checking SHA-1")
        if hash_file(path, "sha1") == file.sha1:
            return Item(file, path, "whole", path.stat().st_size, path.stat().st_size)
    try:
        size = client.size(file.url)
    except Absent:
        raise _missing(file) from None
    have = PartFile(path).size()
    return Item(file, path, "damaged" if path.exists() else "begun" if have else "absent", size, have)


def download(
    items: Sequence[Item], folder: Path, client: Client, progress: Callable[[Progress], None] = lambda _: None
) -> None:
    """Get what is not here yet into `folder`, one file after another: mirrors ask for few connections.

    Raises:
        UserError: there is no room for it all (asked before the start), or the disk is full.
        JobError: a file cannot be had, or has another SHA-1 than listed.
    """
    check_room(items, folder)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [item.size for item in items]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    before = received = 0
    for item in items:
        if item.state != "whole":

            def show(done: int, new: int, item: Item = item, before: int = before) -> None:
                nonlocal received
                received += new
                progress(Progress(item.file.name, before + done, total, received))

            try:
                client.fetch(item.file.url, item.path, size=item.size, sha1=item.file.sha1, progress=show)
            except Absent:
                raise _missing(item.file) from None
        before += item.path.stat().st_size


def check_room(items: Sequence[Item], folder: Path) -> None:
    """Check that what is missing fits on the disk of `folder`.

    Raises:
        UserError: it does not.
    """
    need = sum(max(0, item.size - item.have) for item in items if item.state != "whole" and item.size is not None)
    standing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(standing).free
    if need > free:
        raise UserError(
            f"--output {folder}: {need / 1e6:,.1f} MB are needed and {free / 1e6:,.1f} MB are free there; free "
            f"{(need - free) / 1e6:,.1f} MB or give another folder"
        )


def _missing(file: DumpFile) -> JobError:
    return JobError(f"{file.url}: listed by the mirror, but not there; give another --mirror or an earlier --date")
