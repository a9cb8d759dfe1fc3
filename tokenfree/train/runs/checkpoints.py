"""Checkpoints on disk: written atomically, checked by hash when read; the newest few and the best are kept.

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
from pydantic import with_config
from torch import Tensor
from typing_extensions import TypedDict

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import hash_file, sync
from tokenfree.core.stored_files import OPEN, checked

_PROGRESS = "tally"  # the key of `CheckpointState.progress` in state.json


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """How far a run has come, over all its starts; what result.json is made of."""

    loss: float = float("nan")  # of the last step, nats per target
    characters: int = 0  # trained on, special ones and padding left out
    seconds: float = 0.0  # in steps, validations and checkpoints left out
    validation: Mapping[str, float] | None = None  # the last one, by the names of its line in metrics.jsonl
    validated_at: int = -1  # its step; -1: none yet
    best_step: int | None = None  # the step of the best validation
    best_loss: float = float("inf")  # of that: what validations are compared by, such as nats per target; low is good

    def after_step(self, line: Mapping[str, float]) -> RunProgress:
        """The progress with a step, by its line of metrics."""
        return dataclasses.replace(
            self,
            loss=line["loss"],
            characters=self.characters + int(line["characters"]),
            seconds=self.seconds + line["seconds"],
        )

    def after_validation(self, step: int, validation: Mapping[str, float], badness: float) -> RunProgress:
        """The progress with the validation after `step`; the first of those with the lowest `badness` is the best."""
        progress = dataclasses.replace(self, validation=validation, validated_at=step)
        if badness < self.best_loss:
            return dataclasses.replace(progress, best_step=step, best_loss=badness)
        return progress


class _Used(TypedDict):
    train_seconds: float
    characters: int
    flops: float


@with_config(OPEN)
class _Report(TypedDict):
    report: int


class TrialProgress(TypedDict):
    """How far a trial of a sweep has come, see `tokenfree.train.sweep.trial`."""

    steps: int  # that its budget is worth
    used: _Used  # since its beginning, over all workers
    report: _Report  # the last one


@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says beside its tensors. Fields with a default are missing in some checkpoints."""

    step: int  # optimizer steps done
    seed: int  # train.seed
    recipe: str  # fingerprint of the recipe
    manifest: str  # fingerprint of the data; "" where weights were imported
    vocabulary: str | None  # SHA-256 of the vocabulary; None: the data have none
    loader: Mapping[str, str | int | float]  # what decides the batches, see `Loader.fingerprint`
    world_size: int  # workers that wrote it
    left_out: tuple[int, ...] = ()  # numbers of the batches that are not trained on, ascending
    recent_losses: tuple[float, ...] = ()  # against which the next loss is judged, the oldest first, nats per target
    progress: RunProgress | None = None  # of a run
    trial: TrialProgress | None = None  # of a sweep's trial

    def to_mapping(self) -> dict[str, Any]:
        """The content of state.json but for the hashes of files; what is None for want of a run or trial is not in."""
        mapping = dataclasses.asdict(self)
        progress, trial = mapping.pop("progress"), mapping.pop("trial")
        mapping |= {"left_out": list(self.left_out), "recent_losses": list(self.recent_losses)}
        return mapping | ({_PROGRESS: progress} if progress else {}) | ({"trial": trial} if trial is not None else {})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CheckpointState:
        """The state that `to_mapping` gave here or in another version: unknown keys are passed over, new ones default.

        Raises:
            ValueError: a key is missing that every checkpoint has, or is of another type; the message names it.
        """
        own = {**mapping, "progress": mapping.get(_PROGRESS)}
        needed = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
        missing = [name for name in needed if name not in own]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
        return checked(cls, own)


MARK, STATE = "COMMIT", "state.json"


def mark_of(state: bytes) -> bytes:
    """The content of the mark beside a state.json of this content; any other is damage."""
    return hashlib.sha256(state).hexdigest().encode() + b"\n"


Warn = Callable[[str], None]
MODEL, OPTIMIZER, AVERAGE = "model", "optimizer", "average"  # the parts of a checkpoint; the last one is not in all
_NAME = re.compile(r"step_(\d{8,})")
_SUFFIX = ".safetensors"


@with_config(OPEN)
class _Files(TypedDict):
    files: dict[str, str]  # hashes, of a state.json


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose hashes were found right.

    Attributes:
        parts: Names of its files of tensors.
        damaged: Messages about newer checkpoints that were passed over.
    """

    path: Path
    state: CheckpointState
    parts: frozenset[str]
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The optimizer steps that were done when it was made."""
        return self.state.step

    def record(self) -> dict[str, Any]:
        """Return what results and `--json` say of the checkpoint that they are made with."""
        return {"step": self.step, **({"damaged": list(self.damaged)} if self.damaged else {})}

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of `part` by name, on the CPU."""
        return safetensors.torch.load_file(self.path / f"{part}{_SUFFIX}")

    def weights(self) -> dict[str, Tensor]:
        """What the trained model is to be used with: the averages where there are some, else the weights, by name."""
        return {**self.tensors(MODEL), **(self.tensors(AVERAGE) if AVERAGE in self.parts else {})}


def checkpoint_name(step: int) -> str:
    """The folder of the checkpoint made after `step` steps."""
    return f"step_{step:08d}"


def write(folder: Path, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState) -> None:
    """Write a checkpoint as `folder`, replacing what was there; until the last moment it has another name.

    Args:
        parts: tensors by part and name.

    Raises:
        UserError: the disk is full or cannot be written; nothing half-written stays.
    """
    temporary = folder.parent / f"_tmp_{folder.name}_{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for part, tensors in parts.items():
            save_tensors(tensors, temporary / f"{part}{_SUFFIX}")
        hashes = {path.name: hash_file(path) for path in sorted(temporary.iterdir())}
        said = json.dumps({**state.to_mapping(), "files": hashes}, indent=1) + "\n"
        for name, data in ((STATE, said.encode()), (MARK, mark_of(said.encode()))):
            (temporary / name).write_bytes(data)
            sync(temporary / name)
        if folder.exists():  # an earlier attempt that was damaged
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync(folder.parent)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors reports a full disk as its own error
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"cannot write the checkpoint {folder}: {error}; make room or mend the folder, then run the same command "
            "again: it goes on from the last good checkpoint"
        ) from error


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, with the permissions of the other files of this process."""
    path.touch()
    mode = path.stat().st_mode
    path.unlink()  # nothing stays of a write that fails
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, path, metadata=metadata)
    path.chmod(mode)  # the library makes files that nobody else may read, whatever the umask


def read(folder: Path, *, name: str | None = None) -> Checkpoint:
    """The checkpoint in `folder`, every hash checked; `name` is what messages call it.

    Raises:
        JobError: it is damaged; the message names the folder and the file.
    """
    name = name or str(folder)
    try:
        said = (folder / STATE).read_bytes()
        if (folder / MARK).read_bytes() != mark_of(said):
            raise JobError(f"the checkpoint {name} is damaged: {STATE} does not match {MARK}")
        mapping = checked(_Files, json.loads(said))
        if f"{MODEL}{_SUFFIX}" not in mapping["files"]:
            raise ValueError(f"names no {MODEL}{_SUFFIX}")
        for file, expected in mapping["files"].items():
            if hash_file(folder / file) != expected:
                raise JobError(f"the checkpoint {name} is damaged: {file} does not match its hash")
        state = CheckpointState.from_mapping(mapping)
    except OSError as error:
        raise JobError(f"the checkpoint {name} is damaged: cannot read {Path(error.filename).name}") from error
    except (ValueError, RecursionError) as error:
        raise JobError(f"the checkpoint {name} is of another version: its state.json {error}") from error
    return Checkpoint(folder, state, frozenset(file.removesuffix(_SUFFIX) for file in mapping["files"]))


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint in `folder`, ascending; damaged ones included."""
    return steps_of(path.name for path in folder.iterdir()) if folder.is_dir() else []


def steps_of(names: Iterable[str]) -> list[int]:
    """The steps of the checkpoints among the `names` in a folder, ascending."""
    matches = [_NAME.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match)


def newest_sound(steps: Sequence[int], read_step: Callable[[int], Checkpoint], warn: Warn) -> Checkpoint | None:
    """Return the last of the checkpoints of ascending `steps` for which `read_step` raises no JobError.

    `warn` gets a message about each damaged one.
    """
    for step in reversed(steps):
        try:
            return read_step(step)
        except JobError as error:
            warn(f"{error}; the one before it is used")
    return None


def prune(folder: Path, *, step: int, keep: int, best: int | None) -> None:
    """Remove checkpoints up to `step` but the `keep` newest of them and that of the step `best`, and unfinished ones.

    Later ones exist only where they were found damaged; they stay until training comes there again.
    """
    for old in superfluous(steps(folder), step=step, keep=keep, best=best):
        shutil.rmtree(folder / checkpoint_name(old), ignore_errors=True)
    for leftover in folder.glob("_tmp_*"):
        shutil.rmtree(leftover, ignore_errors=True)


def superfluous(steps: Sequence[int], *, step: int, keep: int, best: int | None) -> list[int]:
    """Those of the ascending `steps` that `prune` removes, with its arguments."""
    return [old for old in [old for old in steps if old <= step][:-keep] if old != best]


class CheckpointWriter:
    """Writes checkpoints behind the training: one at a time, the caller waits only for the one before.

    Args:
        folder: that of all checkpoints of the run.
        saved: called as `saved(step, best=best)`, behind the training too, when one is written.
    """

    def __init__(self, folder: Path, *, saved: Callable[..., None]) -> None:
        self._folder = folder
        self._saved = saved
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def submit(self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, *, best: int | None) -> None:
        """Start writing the checkpoint of `state.step`; the tensors must not change any more.

        Args:
            best: the step whose checkpoint is to be kept, however old it is.

        Raises:
            UserError: the write before this one failed.
        """
        self.wait()
        self._pending = self._pool.submit(self._write, parts, state, best)

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            UserError: that failed.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, best: int | None) -> None:
        write(self._folder / checkpoint_name(state.step), parts, state)
        self._saved(state.step, best=best)

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._pool.shutdown()
