"""Load the files that other commands left in a folder, and how they were made, for the report."""

import contextlib
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import with_config
from typing_extensions import TypedDict

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import OPEN, StoredFile, check_finished
from tokenfree.preprocess.dataset.manifest import Manifest, load_manifest
from tokenfree.train.runs.formats import (
    CONFIG_NAME,
    EVENTS,
    EVENTS_NAME,
    METRICS,
    METRICS_NAME,
    REPORT_CONFIG,
    RESULT,
    RESULT_NAME,
)
from tokenfree.train.sweep.history import SCORES, SCORES_FILE, SWEEP_FILE, TABLE, TrialState, read_history
from tokenfree.train.sweep.recipe import LOSS, quality
from tokenfree.workflows.report.parts import Table
from tokenfree.workflows.terminal.results import counted

Line = Mapping[str, Any]


@with_config(OPEN)
class _Prediction(TypedDict):
    key: str


_PREDICTIONS: StoredFile[Line] = StoredFile(
    _Prediction, "put a copy of it back, or delete it: the page needs none"
)


@dataclass(frozen=True)
class RunRecord:
    """A pretraining or fine-tuning run, as the files in its folder describe it."""

    path: Path
    config: Mapping[str, Any]
    steps: Sequence[Line]  # metrics lines with a training loss
    validations: Sequence[Line]  # metrics lines with a validation loss
    events: Sequence[Line]
    result: Mapping[str, Any]  # empty until the run has ended

    @property
    def recipe(self) -> Mapping[str, Any]:
        return self.config.get("recipe", self.config)

    @property
    def is_finetuned(self) -> bool:
        return "task" in self.recipe

    @property
    def attempts(self) -> Sequence[Line]:
        """Commands that trained the run; empty for a folder of an early version."""
        return self.config.get("attempts") or ()

    @property
    def num_steps(self) -> int:
        return self.steps[-1]["step"] if self.steps else 0

    @property
    def characters(self) -> list[float]:
        """Characters read up to each step."""
        return list(itertools.accumulate(line.get("characters", 0) for line in self.steps))

    @property
    def seconds(self) -> list[float]:
        """Seconds spent in steps up to each step."""
        return list(itertools.accumulate(line.get("seconds", 0.0) for line in self.steps))

    @property
    def speeds(self) -> list[float]:
        return [
            line.get("characters", 0) / line["seconds"] if line.get("seconds") else 0.0 for line in self.steps
        ]

    @property
    def median_speed(self) -> float:
        return statistics.median(self.speeds or [0.0])

    @property
    def restarts(self) -> int:
        return sum(event.get("event") == "worker_lost" for event in self.events)


@dataclass(frozen=True)
class SweepRecord:
    """A sweep, finished or not."""

    path: Path
    recipe: Mapping[str, Any]
    trials: Sequence[TrialState]
    skipped: Mapping[str, int]  # number of settings that were not tried, by reason
    ended: bool
    scores: Mapping[str, Any]  # content of result.json, which a finished sweep of a task has
    attempts: Sequence[Line]  # commands that ran the sweep
    data: str  # fingerprint of the data


@dataclass(frozen=True)
class DataRecord:
    path: Path
    manifest: Manifest


Record = RunRecord | SweepRecord | DataRecord


def load(path: Path) -> Record:
    """Return the record of a folder, whose files decide its kind.

    Raises UserError if they are of none, or damaged.

    Raises JobError if the run or sweep has ended and one of its files, except checkpoints of a run, has
    changed.
    """
    check_finished(path, lambda name: not name.startswith("checkpoints/"))
    if (path / METRICS_NAME).is_file():
        return _run(path)
    if (path / "sweep.yaml").is_file():
        return _sweep(path)
    if (path / "manifest.json").is_file():
        return DataRecord(path, load_manifest(str(path)))
    if not path.exists():
        raise UserError(f"{path}: no such folder")
    raise UserError(f"{path}: holds no metrics.jsonl (a run), sweep.yaml (a sweep) or manifest.json (data)")


def _if_present(read: Callable[[Storage, str], Line], storage: Storage, name: str) -> Line:
    with contextlib.suppress(FileNotFoundError):
        return read(storage, name)
    return {}


def _run(path: Path) -> RunRecord:
    storage = Storage.at(str(path))
    lines = METRICS.json_lines(storage, METRICS_NAME)
    config = _if_present(REPORT_CONFIG.yaml, storage, CONFIG_NAME)
    result = _if_present(RESULT.json, storage, RESULT_NAME)
    steps = [line for line in lines if "loss" in line]
    validations = [line for line in lines if "validation_loss" in line]
    return RunRecord(path, config, steps, validations, EVENTS.json_lines(storage, EVENTS_NAME), result)


def _sweep(path: Path) -> SweepRecord:
    storage = Storage.at(str(path))
    mapping = SWEEP_FILE.yaml(storage, "sweep.yaml")
    recipe = mapping["recipe"]
    target = quality(recipe.get("objectives") or [LOSS.metric])
    history = read_history(
        path, seeds=recipe.get("seeds", 1), reports=recipe.get("reports", 1), target=target
    )
    scores = _if_present(SCORES_FILE.json, storage, SCORES)
    return SweepRecord(
        path, recipe, tuple(history.trials.values()), history.reasons(), (path / TABLE).is_file(), scores,
        mapping.get("attempts") or (), mapping.get("fingerprints", {}).get("data", ""),
    )  # fmt: skip


def predictions(run: RunRecord, split: str) -> Sequence[Line]:
    """Return the predictions of a run for a split; none until it has ended.

    Raises UserError if they are damaged.
    """
    return _PREDICTIONS.json_lines(Storage.at(str(run.path)), f"predictions/{split}.jsonl")


def state(record: RunRecord | SweepRecord, ended: bool) -> str:
    """Return the path and state, such as `runs/tiny (complete, begun 2026-11-22 16:44 UTC)`."""
    start_text = f", begun {_time(record.attempts[0])} UTC" if record.attempts else ""
    return f"{record.path} ({'complete' if ended else 'not ended'}{start_text})"


def attempt_table(attempts: Sequence[Line]) -> Table:
    rows = []
    for attempt in attempts:
        packages = ", ".join(f"{name} {version}" for name, version in (attempt.get("packages") or {}).items())
        commit, _, dirty = str(attempt.get("commit") or "none").partition("-")
        rows.append([
            _time(attempt),
            str(attempt.get("command") or "not recorded"),
            commit[:10] + (f"-{dirty}" if dirty else ""),
            machine_line(attempt.get("machine") or {}),
            packages,
        ])  # fmt: skip
    header = ["begun (UTC)", "command", "commit", "machine", "packages"]
    return Table("Commands, versions and machines", header, rows, folded=True)


def _time(attempt: Line) -> str:
    return str(attempt.get("time") or "not recorded")[:16].replace("T", " ")


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return a machine as `2 cores, 23.5 GiB, no accelerator, Linux-6.1.0-x86_64-with-glibc2.36, Python 3.11.7`."""
    names = list(machine.get("accelerators") or ())
    kinds = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no accelerator"]
    parts = [counted(machine.get("cores") or 0, "core"), f"{machine.get('memory_gib')} GiB", *kinds]
    python = [f"Python {machine['python']}"] if machine.get("python") else []
    return ", ".join([*parts, str(machine.get("system")), *python])
