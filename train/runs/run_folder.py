"""The folder of a run: its resolved config, who may write to it, and its result. Runs in stores: train/run_store.py.

<run>/config.yaml     recipe, data path and manifest fingerprint, written before anything starts
<run>/checkpoints/    see train/checkpoints.py
<run>/metrics.jsonl   events.jsonl   tensorboard/      see train/metrics.py
<run>/result.json     written last: the run is complete
<run>/ray/            storage and logs of Ray, where it was used
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from preprocess.errors import JobError, UserError
from preprocess.settings import build, to_mapping
from preprocess.storage import Storage
from train.checkpoints import Checkpoint, Warn, newest, prune
from train.config import OPERATIONAL, PretrainRecipe
from train.metrics import append_event
from train.metrics import read as read_lines


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What config.yaml holds."""

    recipe: PretrainRecipe
    data: str
    manifest: str  # fingerprint of the data


def read_config(run: str | Path) -> RunConfig:
    """The config of an existing run.

    Raises:
        UserError: there is no run in that folder.
    """
    path = f"{run}/config.yaml"
    try:
        mapping = yaml.safe_load(Storage.at(str(run)).read_bytes("config.yaml"))
    except OSError:
        raise UserError(f"{run} holds no run (no config.yaml); give the --output of a `tokenfree pretrain`") from None
    recipe = build(PretrainRecipe, mapping["recipe"], source=path)
    return RunConfig(recipe, mapping["data"], mapping["manifest"])


class RunFolder:
    """A run in a folder that all workers reach, and what is done with it as training goes on.

    `folder` is where the worker of rank 0 reads and writes, `name` the path or address of the run.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder = folder
        self.name = name or str(folder)

    def open(self, recipe: PretrainRecipe, data: str, manifest: str) -> None:
        """See `open_run`."""
        open_run(self.folder, recipe, data, manifest)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Held against other commands; yields what workers need to prove it.

        Raises:
            UserError: another command trains this run.
        """
        held = UserError(f"{self.name} is being trained by another command; wait for it or give another --output")
        with lock(self.folder / "lock", seconds=0, held=held):
            yield None

    def result(self) -> dict[str, Any] | None:
        """The result of a complete run, else None."""
        return read_result(self.folder)

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl."""
        return read_lines(self.folder / "events.jsonl")

    def add_event(self, event: str, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl while no worker lives; returns it."""
        return append_event(self.folder / "events.jsonl", event, step=None, **more)

    def fetch(self) -> None:
        """Have the small files of an existing run in `folder`.

        Raises:
            UserError: there is no run.
        """
        read_config(self.name)

    def begin(self) -> None:
        """Called by the worker of rank 0 before it reads anything else of the run."""

    def newest(self, warn: Warn) -> Checkpoint | None:
        """See `train.checkpoints.newest`."""
        return newest(self.folder / "checkpoints", warn)

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint that the worker of rank 0 has, for a worker on this machine."""
        return checkpoint

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """Called when the checkpoint of `step` is written: old ones go."""
        prune(self.folder / "checkpoints", step=step, keep=keep, best=best)

    def publish(self) -> None:
        """Called when something happened that others should see at once."""

    def keep(self, source: Path, name: str) -> None:
        """Copy a file into the run under `name`."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def finish(self) -> None:
        """Called by the worker of rank 0 when the result is written."""


def run_at(run: str | Path, owner: str | None = None) -> RunFolder:
    """The run at a path or an address; `owner` is what `RunFolder.claimed` gave."""
    if "://" not in str(run):
        return RunFolder(Path(run).absolute())
    from train.run_store import RunStore  # which is built on this module

    storage = Storage.at(str(run))
    return RunFolder(Path(storage.path(""))) if storage.is_local else RunStore(str(run), owner)


def open_run(run: Path, recipe: PretrainRecipe, data: str, manifest: str, *, name: str | None = None) -> None:
    """Make the folder of a new run, or see that an existing one is of the same recipe and data.

    `name` is what messages call it, by default its path.

    Raises:
        UserError: it is of another recipe or other data (all differences are named), or cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        if (run / "config.yaml").exists():
            _compare(run, recipe, manifest, name or str(run))
        elif any(path.name != "lock" for path in run.iterdir()):
            raise UserError(f"{run} holds other files and no run; give an empty or new folder as --output")
        mapping = {"recipe": to_mapping(recipe), "data": data, "manifest": manifest}
        write_atomically(run / "config.yaml", yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise UserError(f"cannot write the run folder {run}: {error.strerror}; give another --output") from None


def read_result(run: Path) -> dict[str, Any] | None:
    """The result of a complete run, else None."""
    path = run / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that readers see the old one or the new one, whole."""
    temporary = path.with_name(f"_tmp_{path.name}_{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


@contextlib.contextmanager
def lock(path: Path, *, seconds: float, held: Exception) -> Iterator[None]:
    """Hold the lock file `path`; raises `held` where another process still holds it after `seconds`.

    The system lets go of the lock of a killed process, so nothing is left to clean up.
    """
    with path.open("a") as file:
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise held from None
                time.sleep(0.05)
            except OSError as error:
                raise JobError(
                    f"cannot lock {path}: {error.strerror}; put the run on a file system that has locks (NFS 4, "
                    "Lustre with -o flock, a local disk)"
                ) from None
        yield


def _compare(run: Path, recipe: PretrainRecipe, manifest: str, name: str) -> None:
    before = read_config(run)
    old, new = (dict(flatten(to_mapping(each))) for each in (before.recipe, recipe))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key) and key not in OPERATIONAL]
    differences = [f"{key} is {new.get(key)!r}, was {old.get(key)!r}" for key in keys]
    if before.manifest != manifest:
        differences.append(f"the data differ from those of {before.data}")
    if differences:
        remedy = "give the settings of the run, or another --output to start a new one"
        if "train.steps" in keys:
            remedy += " (the learning rate of every step depends on train.steps)"
        raise UserError(f"{name} is a run of other settings: {'; '.join(differences)}; {remedy}")


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested mapping with their dotted keys."""
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
