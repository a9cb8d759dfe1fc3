"""Checkpoints on disk: written atomically and verified by hash when read.

The newest few and the best are kept.

    <run>/checkpoints/step_00001000/   model.safetensors  optimizer.safetensors  state.json  COMMIT

`COMMIT` holds the hash of `state.json`, which holds the hashes of the other files; it is written last.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor, nn

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import hash_file, sync
from tokenfree.core.stored_files import checked
from tokenfree.train.torch_state import random_numbers

M = TypeVar("M", bound=nn.Module)
_PROGRESS = "tally"  # the key of `CheckpointState.progress` in state.json


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """Progress of a run over all its starts. result.json is made from it."""

    loss: float = float("nan")  # loss of the last step, nats per target
    characters: int = 0  # characters trained on, without special ones and padding
    seconds: float = 0.0  # seconds spent in steps, without validations and checkpoints
    # Values of the last validation, as in metrics.jsonl. With `float` alone, a resumed run would turn counts
    # into floats.
    validation: Mapping[str, int | float] | None = None
    best_step: int | None = None  # step of the best validation
    # Value that validations are compared by, such as nats per target; lower is better.
    best_loss: float = float("inf")

    def after_step(self, line: Mapping[str, float]) -> "RunProgress":
        return dataclasses.replace(
            self,
            loss=line["loss"],
            characters=self.characters + int(line["characters"]),
            seconds=self.seconds + line["seconds"],
        )

    def after_validation(
        self, step: int, validation: Mapping[str, float], selection_loss: float
    ) -> "RunProgress":
        """Return the progress after a validation.

        The best step is the first with the lowest `selection_loss`.
        """
        progress = dataclasses.replace(self, validation=validation)
        if selection_loss < self.best_loss:
            return dataclasses.replace(progress, best_step=step, best_loss=selection_loss)
        return progress

    def steps_after_best(self, step: int) -> int:
        """Return the number of steps from the best validation to `step`; 0 without one."""
        return 0 if self.best_step is None else step - self.best_step


@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """Content of a checkpoint besides its tensors. Fields with a default are missing in some checkpoints."""

    step: int  # optimizer steps done
    seed: int  # train.seed
    recipe: str  # fingerprint of the recipe
    manifest: str  # fingerprint of the data; "" for imported weights
    vocabulary: str | None  # SHA-256 of the vocabulary; None: the data have none
    loader: Mapping[str, str | int | float]  # settings that decide the batches, see `Loader.fingerprint`
    world_size: int  # number of workers that wrote it
    left_out: tuple[int, ...] = ()  # numbers of the skipped batches, ascending
    # Losses that the next one is compared with, oldest first, nats per target.
    recent_losses: tuple[float, ...] = ()
    progress: RunProgress | None = None  # progress of a run
    trial: Mapping[str, Any] | None = None  # progress of a sweep's trial; see tokenfree.train.sweep.trial

    def to_mapping(self) -> dict[str, Any]:
        mapping = dataclasses.asdict(self)
        progress, trial = mapping.pop("progress"), mapping.pop("trial")
        return (
            mapping
            | ({_PROGRESS: progress} if progress else {})
            | ({"trial": trial} if trial is not None else {})
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "CheckpointState":
        """Return the state that any version wrote. Raise ValueError if a key is missing or invalid."""
        return checked(cls, {**mapping, "progress": mapping.get(_PROGRESS)})


MARK, STATE = "COMMIT", "state.json"


def mark_of(state: bytes) -> bytes:
    """Return the content of the mark for the content of state.json; any other means damage."""
    return hashlib.sha256(state).hexdigest().encode() + b"\n"


Warn = Callable[[str], None]
# Parts of a checkpoint; some have no average.
MODEL, OPTIMIZER, AVERAGE = "model", "optimizer", "average"
_NAME = re.compile(r"step_(\d{8,})")
_SUFFIX = ".safetensors"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose hashes are correct."""

    path: Path
    state: CheckpointState
    parts: frozenset[str]  # names of its files of tensors
    damaged: tuple[str, ...] = ()  # messages about newer checkpoints that were skipped

    @property
    def step(self) -> int:
        return self.state.step

    def record(self) -> dict[str, Any]:
        return {"step": self.step, **({"damaged": list(self.damaged)} if self.damaged else {})}

    def tensors(self, part: str) -> dict[str, Tensor]:
        return safetensors.torch.load_file(self.path / f"{part}{_SUFFIX}")

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use the trained model with: the averages if there are any."""
        return {**self.tensors(MODEL), **(self.tensors(AVERAGE) if AVERAGE in self.parts else {})}

    def check_fit(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Raise UserError unless `tensors` of this checkpoint are those of `model`, which config.yaml describes."""
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        saved = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wrong = sorted(name for name in expected | saved if expected.get(name) != saved.get(name))
        if wrong:
            here = expected.get(wrong[0], "no part")
            first = f"{wrong[0]} is {saved.get(wrong[0], 'missing')} there, and {here} here"
            raise UserError(
                f"{self.path.parents[1]}/config.yaml: its model does not fit the weights of {self.path.name}: "
                f"{len(wrong)} of {len(expected)} tensors differ ({first}). Restore the file that the run was "
                "trained with."
            )

    def built(self, build: Callable[[], M], tensors: Mapping[str, Tensor]) -> M:
        """Return the model of `build` with `tensors` of this checkpoint as its weights, in evaluation mode."""
        # Building the model draws random weights, which are then overwritten.
        with random_numbers():
            model = build()
        self.check_fit(model, tensors)
        model.load_state_dict(tensors)
        return model.eval()


def checkpoint_name(step: int) -> str:
    return f"step_{step:08d}"


def write(folder: Path, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState) -> None:
    """Write a checkpoint under a temporary name until complete. Raises UserError if the disk is full."""
    temporary = folder.parent / f"_tmp_{folder.name}_{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for part, tensors in parts.items():
            save_tensors(tensors, temporary / f"{part}{_SUFFIX}")
        hashes = {path.name: hash_file(path) for path in sorted(temporary.iterdir())}
        content = json.dumps({**state.to_mapping(), "files": hashes}, indent=1) + "\n"
        for name, data in ((STATE, content.encode()), (MARK, mark_of(content.encode()))):
            (temporary / name).write_bytes(data)
            sync(temporary / name)
        # A damaged checkpoint of an earlier attempt.
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync(folder.parent)
    # safetensors reports a full disk as its own error.
    except (OSError, safetensors.SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"cannot write the checkpoint {folder}: {error}; make room or fix the folder, then run the same command "
            "again: it resumes from the last good checkpoint"
        ) from error


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, with the permissions of the other files of this process."""
    path.touch()
    mode = path.stat().st_mode
    # So that a failed write leaves no empty file.
    path.unlink()
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(contiguous, path, metadata=metadata)
    # Safetensors creates files that only the owner can read, regardless of the umask.
    path.chmod(mode)


def read(folder: Path, *, name: str | None = None) -> Checkpoint:
    """Return the checkpoint in `folder`, which messages call `name`. Raises JobError if a hash differs."""
    name = name or str(folder)
    try:
        content = (folder / STATE).read_bytes()
        if (folder / MARK).read_bytes() != mark_of(content):
            raise JobError(f"the checkpoint {name} is damaged: {STATE} does not match {MARK}")
        mapping = json.loads(content)
        if f"{MODEL}{_SUFFIX}" not in mapping["files"]:
            raise ValueError(f"names no {MODEL}{_SUFFIX}")
        for file, expected in mapping["files"].items():
            if hash_file(folder / file) != expected:
                raise JobError(f"the checkpoint {name} is damaged: {file} does not match its hash")
        state = CheckpointState.from_mapping(mapping)
    except OSError as error:
        raise JobError(
            f"the checkpoint {name} is damaged: cannot read {Path(error.filename).name}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JobError(f"the checkpoint {name} is of another version: its state.json {error}") from error
    return Checkpoint(folder, state, frozenset(file.removesuffix(_SUFFIX) for file in mapping["files"]))


def steps(folder: Path) -> list[int]:
    """Return the steps that have a checkpoint in `folder`, ascending, including damaged ones."""
    return steps_of(path.name for path in folder.iterdir()) if folder.is_dir() else []


def steps_of(names: Iterable[str]) -> list[int]:
    matches = [_NAME.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match)


def newest_sound(
    steps: Sequence[int], read_step: Callable[[int], Checkpoint], warn: Warn
) -> Checkpoint | None:
    """Return the last checkpoint for which `read_step` raises no JobError, or None.

    `warn` gets these errors.
    """
    for step in reversed(steps):
        try:
            return read_step(step)
        except JobError as error:
            warn(f"{error}; the one before it is used")
    return None


def prune(folder: Path, *, step: int, keep: int, best: int | None) -> None:
    """Remove unfinished checkpoints, and those up to `step` except the `keep` newest and that of step `best`.

    Checkpoints after `step` are damaged ones. They stay until training reaches their step again.
    """
    for old in steps_to_prune(steps(folder), step=step, keep=keep, best=best):
        shutil.rmtree(folder / checkpoint_name(old), ignore_errors=True)
    for leftover in folder.glob("_tmp_*"):
        shutil.rmtree(leftover, ignore_errors=True)


def steps_to_prune(steps: Sequence[int], *, step: int, keep: int, best: int | None) -> list[int]:
    """Return those of the ascending `steps` that `prune` removes, with its arguments."""
    return [old for old in [old for old in steps if old <= step][:-keep] if old != best]


class CheckpointWriter(contextlib.AbstractContextManager["CheckpointWriter"]):
    """A writer that saves checkpoints in the background, one at a time; `saved(step, best=best)` follows each."""

    def __init__(self, folder: Path, *, saved: Callable[..., None]) -> None:
        self._folder = folder
        self._saved = saved
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def submit(
        self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, *, best: int | None
    ) -> None:
        """Wait for the previous checkpoint, then start writing one.

        The tensors must not change afterwards.
        """
        self.wait()
        self._pending = self._pool.submit(self._write, parts, state, best)

    def wait(self) -> None:
        """Wait until everything is written. Raise the error of a write that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(
        self, parts: Mapping[str, Mapping[str, Tensor]], state: CheckpointState, best: int | None
    ) -> None:
        write(self._folder / checkpoint_name(state.step), parts, state)
        self._saved(state.step, best=best)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with self._pool:
            if error is None:
                self.wait()
