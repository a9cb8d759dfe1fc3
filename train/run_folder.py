"""The folder of a run: its resolved config, who may write to it, and its result.

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
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from preprocess.errors import JobError, UserError
from preprocess.settings import build, to_mapping
from train.config import OPERATIONAL, PretrainRecipe


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
    path = Path(run) / "config.yaml"
    try:
        mapping = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{run} holds no run (no config.yaml); give the --output of a `tokenfree pretrain`") from None
    recipe = build(PretrainRecipe, mapping["recipe"], source=str(path))
    return RunConfig(recipe, mapping["data"], mapping["manifest"])


def open_run(run: Path, recipe: PretrainRecipe, data: str, manifest: str) -> None:
    """Make the folder of a new run, or see that an existing one is of the same recipe and data.

    Raises:
        UserError: it is of another recipe or other data (all differences are named), or cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        if (run / "config.yaml").exists():
            _compare(run, recipe, manifest)
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


def _compare(run: Path, recipe: PretrainRecipe, manifest: str) -> None:
    before = read_config(run)
    old, new = (dict(_flatten(to_mapping(each), "")) for each in (before.recipe, recipe))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key) and key not in OPERATIONAL]
    differences = [f"{key} is {new.get(key)!r}, was {old.get(key)!r}" for key in keys]
    if before.manifest != manifest:
        differences.append(f"the data differ from those of {before.data}")
    if differences:
        remedy = "give the settings of the run, or another --output to start a new one"
        if "train.steps" in keys:
            remedy += " (the learning rate of every step depends on train.steps)"
        raise UserError(f"{run} is a run of other settings: {'; '.join(differences)}; {remedy}")


def _flatten(mapping: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
