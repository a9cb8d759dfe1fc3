"""Reads what the other commands left in a folder, and how it was made, for the report."""

import contextlib
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest, load_manifest
from tokenfree.train.runs.config import (
    CONFIG_NAME,
    EVENTS,
    EVENTS_NAME,
    METRICS,
    METRICS_NAME,
    RESULT,
    RESULT_NAME,
    SHOWN_CONFIG,
)
from tokenfree.train.sweep.history import SWEEP_FILE, TrialState
from tokenfree.train.sweep.recipe import LOSS, quality
from tokenfree.train.sweep.results import read
from tokenfree.workflows.report.parts import Table

_VERSIONS = ("torch", "ray")  # packages that are named at the top; a table has all

Attempt = Mapping[str, Any]  # see train/runs/provenance.py


@dataclass(frozen=True)
class RunRecord:
    """A run of pretraining or fine-tuning.

    Attributes:
        path: its folder.
        config: the content of config.yaml.
        steps: the lines of its metrics with a training loss.
        validations: the lines of its metrics with a validation loss.
        events: the lines of its events.
        result: the content of result.json; None until it has ended.
    """

    path: Path
    config: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    validations: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe."""
        return self.config.get("recipe", self.config)

    @property
    def is_finetuned(self) -> bool:
        """Whether it was trained for a task."""
        return "task" in self.recipe

    @property
    def attempts(self) -> list[Attempt]:
        """The commands that trained it; none of a folder that an early version made."""
        return list(self.config.get("attempts") or ())

    @property
    def done(self) -> int:
        """Number of steps."""
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
        """Characters per second of each step."""
        return [line.get("characters", 0) / line["seconds"] if line.get("seconds") else 0.0 for line in self.steps]

    @property
    def speed(self) -> float:
        """Median of the characters per second; 0 before the first step."""
        return statistics.median(self.speeds or [0.0])

    @property
    def restarts(self) -> int:
        """Number of lost workers."""
        return sum(event.get("event") == "worker_lost" for event in self.events)


@dataclass(frozen=True)
class SweepRecord:
    """A sweep as far as it is.

    Attributes:
        path: its folder.
        recipe: the recipe of the sweep.
        trials: all trials.
        skipped: number of settings that were not tried, by reason.
        ended: whether all trials have ended.
        attempts: the commands that ran it.
        data: the fingerprint of its data.
    """

    path: Path
    recipe: Mapping[str, Any]
    trials: Sequence[TrialState]
    skipped: Mapping[str, int]
    ended: bool
    attempts: Sequence[Attempt]
    data: str

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name


@dataclass(frozen=True)
class DataRecord:
    """A data directory, by its manifest."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name


Record = RunRecord | SweepRecord | DataRecord


def load(path: Path) -> Record:
    """Read a folder by the files in it.

    Raises:
        UserError: it is neither a run, nor a sweep, nor a data directory, or a file of it is damaged.
    """
    if (path / METRICS_NAME).is_file():
        return _run(path)
    if (path / "sweep.yaml").is_file():
        return _sweep(path)
    if (path / "manifest.json").is_file():
        return DataRecord(path, load_manifest(str(path)))
    if not path.exists():
        raise UserError(f"{path}: no such folder")
    raise UserError(f"{path}: holds no metrics.jsonl (a run), sweep.yaml (a sweep) or manifest.json (data)")


def _run(path: Path) -> RunRecord:
    storage = Storage.at(str(path))
    lines = METRICS.json_lines(storage, METRICS_NAME)
    config: Mapping[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        config = SHOWN_CONFIG.yaml(storage, CONFIG_NAME)
    result = None
    with contextlib.suppress(FileNotFoundError):
        result = RESULT.json(storage, RESULT_NAME)
    steps = [line for line in lines if "loss" in line]
    validations = [line for line in lines if "validation_loss" in line]
    return RunRecord(path, config, steps, validations, EVENTS.json_lines(storage, EVENTS_NAME), result)


def _sweep(path: Path) -> SweepRecord:
    mapping = SWEEP_FILE.yaml(Storage.at(str(path)), "sweep.yaml")
    recipe = mapping["recipe"]
    target = quality(recipe.get("objectives") or [LOSS.metric])
    history, ended = read(path, seeds=recipe.get("seeds", 1), reports=recipe.get("reports", 1), target=target)
    data = mapping.get("fingerprints", {}).get("data", "")
    attempts = list(mapping.get("attempts") or ())
    return SweepRecord(path, recipe, tuple(history.trials.values()), history.reasons(), ended, attempts, data)


def made_with(records: Sequence[RunRecord | SweepRecord]) -> list[tuple[str, str]]:
    """Return (what, value) of the dates, versions and machines of all runs and sweeps.

    The dates are those of the commands, so that the same files give the same page.
    """
    if not records:
        return []
    attempts = [attempt for record in records for attempt in record.attempts]
    unknown = [] if all(record.attempts for record in records) else ["not recorded for some"]
    times = sorted({_time(attempt) for attempt in attempts})
    found = (
        ("Trained", [" to ".join(dict.fromkeys([times[0], times[-1]])) + " UTC"] if times else []),
        ("Versions", [_versions(attempt) for attempt in attempts]),
        ("Machine", [machine_line(attempt.get("machine") or {}) for attempt in attempts]),
    )
    return [(what, "; ".join([*dict.fromkeys(texts), *unknown])) for what, texts in found]


def attempt_table(attempts: Sequence[Attempt]) -> Table:
    """Return a row for each command that made a folder, with the versions and the machine."""
    rows = []
    for attempt in attempts:
        packages = ", ".join(f"{name} {version}" for name, version in (attempt.get("packages") or {}).items())
        command, commit = str(attempt.get("command") or "not recorded"), _commit(attempt) or "none"
        rows.append([_time(attempt), command, commit, machine_line(attempt.get("machine") or {}), packages])
    header = ["begun (UTC)", "command", "commit", "machine", "packages"]
    return Table("Commands, versions and machines", header, rows, folded=True)


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return a machine as `2 cores, 23.5 GiB, no accelerator, Linux-6.1.0-x86_64-with-glibc2.36`."""
    names = list(machine.get("accelerators") or ())
    kinds = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no accelerator"]
    cores = machine.get("cores")
    parts = [f"{cores} {'core' if cores == 1 else 'cores'}", f"{machine.get('memory_gib')} GiB", *kinds]
    return ", ".join([*parts, str(machine.get("system"))])


def _time(attempt: Attempt) -> str:
    return str(attempt.get("time") or "not recorded")[:16].replace("T", " ")


def _versions(attempt: Attempt) -> str:
    """Return `tokenfree 0.1.0 (commit 0cb59b8f6f), Python 3.11.7, torch 2.13.0, ray 2.60.0`."""
    packages, machine = attempt.get("packages") or {}, attempt.get("machine") or {}
    commit = _commit(attempt)
    parts = [f"tokenfree {packages.get('tokenfree', 'not installed')}" + (f" (commit {commit})" if commit else "")]
    parts += [f"Python {machine['python']}"] if machine.get("python") else []
    return ", ".join([*parts, *(f"{name} {packages[name]}" for name in _VERSIONS if name in packages)])


def _commit(attempt: Attempt) -> str:
    """Return `0cb59b8f6f`, with `-dirty` where files differed from it."""
    commit, _, dirty = str(attempt.get("commit") or "").partition("-")
    return commit[:10] + (f"-{dirty}" if dirty else "")
