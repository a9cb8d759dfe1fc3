"""Disks that are full: a small file system for what is written, which is then made larger."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fuzz.judges import expect, judge_losses, judge_shards
from benchmarks.fuzz.originals import BOOKS, DUMPS, PREPROCESS
from benchmarks.fuzz.rounds.context import Round

LARGE = "64m"


def preprocess(round_: Round) -> None:
    """Preprocessing onto a disk that fills up ends in a line, and with room again in the same bytes."""
    round_.take(round_.originals.inputs)
    command = ("preprocess", *BOOKS, *DUMPS, "--output", "disk/data", *PREPROCESS)
    with _disk(round_, _size(round_.originals.data)) as disk:
        outcome = round_.command(*command)
        _enlarge(disk)
        if outcome.status != 0:
            expect(outcome.status == 2, f"a full disk is status {outcome.status}")
            expect(round_.command(*command).status == 0, "does not go on when there is room")
        judge_shards(disk / "data", round_.originals.shards)


def pretrain(round_: Round) -> None:
    """Pretraining onto a disk that fills up ends in a line, and with room again with the same losses."""
    recipe = round_.recipe()
    original = round_.originals.run(recipe)
    round_.take(round_.originals.data)
    round_.take(round_.originals.inputs / f"{recipe}.yaml")
    command = ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", "disk/run")
    with _disk(round_, _size(original)) as disk:
        outcome = round_.command(*command)
        _enlarge(disk)
        if outcome.status != 0:
            expect(outcome.status == 2, f"a full disk is status {outcome.status}")
            expect(round_.command(*command).status == 0, "does not go on when there is room")
        judge_losses(disk / "run", *round_.originals.losses(recipe))


@functools.cache
def is_possible() -> bool:
    """Whether this process may mount a file system."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
        possible = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if possible:
            subprocess.run(["umount", folder], check=True)
        return possible


@contextlib.contextmanager
def _disk(round_: Round, needed: int) -> Iterator[Path]:
    """A file system at `disk`, of 4 kB up to somewhat more than what is needed."""
    disk = round_.folder / "disk"
    disk.mkdir()
    size = 4096 * round_.draw.randint(1, max(2, int(1.3 * needed) // 4096))
    round_.story.append(f"a disk of {size} bytes; what is to be written takes {needed}")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(disk)], check=True)


def _size(folder: Path) -> int:
    return sum(-(-file.stat().st_size // 4096) * 4096 for file in folder.rglob("*") if file.is_file())
