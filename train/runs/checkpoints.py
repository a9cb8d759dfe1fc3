"""Checkpoints on disk: written whole or not at all, checked by hash when read, the newest few and the best kept.

    <run>/checkpoints/step_00001000/   model.safetensors  optimizer.safetensors  state.json  COMMIT

`COMMIT` holds the hash of `state.json`, which holds the hashes of the other files; it is written last.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from preprocess.errors import JobError, UserError

Warn = Callable[[str], None]
_NAME = re.compile(r"step_(\d{8,})")
MARK = "COMMIT"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose hashes were found right. `state` is what was saved beside the tensors."""

    path: Path
    step: int
    state: dict[str, Any]

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of `part` ("model" or "optimizer") by name, on the CPU."""
        return safetensors.torch.load_file(self.path / f"{part}.safetensors")


def name(step: int) -> str:
    """The folder of the checkpoint made after `step` steps."""
    return f"step_{step:08d}"


def write(folder: Path, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Write a checkpoint as `folder`, replacing what was there; until the last moment it has another name.

    Raises:
        UserError: the disk is full or cannot be written; nothing half-written stays.
    """
    temporary = folder.parent / f"_tmp_{folder.name}_{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for part, tensors in parts.items():
            contiguous = {key: tensor.contiguous() for key, tensor in tensors.items()}
            safetensors.torch.save_file(contiguous, temporary / f"{part}.safetensors")
        hashes = {path.name: _hash(path) for path in sorted(temporary.iterdir())}
        _write_text(temporary / "state.json", json.dumps({**state, "files": hashes}, indent=1) + "\n")
        _write_text(temporary / MARK, _hash(temporary / "state.json") + "\n")
        if folder.exists():  # an earlier attempt that was damaged
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync(folder.parent)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors reports a full disk as its own error
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"cannot write the checkpoint {folder}: {error}; make room or mend the folder, then run the same command "
            "again: it goes on from the last good checkpoint"
        ) from error


def read(folder: Path, *, name: str | None = None) -> Checkpoint:
    """The checkpoint in `folder`, every hash checked; `name` is what messages call it.

    Raises:
        JobError: it is damaged; the message names the folder and the file.
    """
    name = name or str(folder)
    try:
        if (folder / MARK).read_text().strip() != _hash(folder / "state.json"):
            raise JobError(f"the checkpoint {name} is damaged: state.json does not match {MARK}")
        state = json.loads((folder / "state.json").read_text())
        for file, expected in state["files"].items():
            if _hash(folder / file) != expected:
                raise JobError(f"the checkpoint {name} is damaged: {file} does not match its hash")
    except OSError as error:
        raise JobError(f"the checkpoint {name} is damaged: cannot read {Path(error.filename).name}") from error
    return Checkpoint(folder, state["step"], state)


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint in `folder`, ascending; damaged ones included."""
    return steps_of(path.name for path in folder.iterdir()) if folder.is_dir() else []


def steps_of(names: Iterable[str]) -> list[int]:
    """The steps of the checkpoints among the `names` in a folder, ascending."""
    matches = [_NAME.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match)


def newest(folder: Path, warn: Warn) -> Checkpoint | None:
    """The newest sound checkpoint of `folder`; `warn` is told of each damaged one passed over."""
    for step in reversed(steps(folder)):
        try:
            return read(folder / name(step))
        except JobError as error:
            warn(f"{error}; the one before it is used")
    return None


def prune(folder: Path, *, step: int, keep: int, best: int | None) -> None:
    """Remove checkpoints up to `step` but the `keep` newest of them and that of the step `best`, and unfinished ones.

    Later ones exist only where they were found damaged; they stay until training comes there again.
    """
    for old in superfluous(steps(folder), step=step, keep=keep, best=best):
        shutil.rmtree(folder / name(old), ignore_errors=True)
    for leftover in folder.glob("_tmp_*"):
        shutil.rmtree(leftover, ignore_errors=True)


def superfluous(steps: Sequence[int], *, step: int, keep: int, best: int | None) -> list[int]:
    """Those of the ascending `steps` that `prune` removes."""
    return [old for old in [old for old in steps if old <= step][:-keep] if old != best]


class Writer:
    """Writes checkpoints behind the training: one at a time, the caller waits only for the one before.

    `saved(step, best=best)` is called, behind the training too, when one is written.
    """

    def __init__(self, folder: Path, *, saved: Callable[..., None]) -> None:
        self.folder = folder
        self._saved = saved
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def submit(self, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], *, best: int | None) -> None:
        """Start writing; the tensors must not change any more. Raises UserError if the write before this one failed."""
        self.wait()
        self._pending = self._pool.submit(self._write, parts, state, best)

    def wait(self) -> None:
        """Wait until all is written. Raises UserError if that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], best: int | None) -> None:
        write(self.folder / name(state["step"]), parts, state)
        self._saved(state["step"], best=best)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._pool.shutdown()


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
