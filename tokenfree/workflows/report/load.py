"""Reads what the other commands left in a folder, for the report."""

import contextlib
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
from tokenfree.train.sweep.control.sweep_files import SWEEP_FILE
from tokenfree.train.sweep.results.tables import read
from tokenfree.train.sweep.results.trial_result import TrialResult, trial_results
from tokenfree.train.sweep.space.targets import LOSS, quality
from tokenfree.workflows.report.attempts import attempts_of


@dataclass(frozen=True)
class RunRecord:
    """A run, of pretraining or fine-tuning: its resolved recipe, the lines of its metrics and events, and its result
    once it ended.
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
    def is_finetuned(self) -> bool:
        """Whether it was trained for a task."""
        return "task" in self.config.get("recipe", self.config)


@dataclass(frozen=True)
class SweepRecord:
    """A sweep: its recipe, its trials as far as they are, settings not tried by reason, whether it has ended, the
    commands that trained it, and the fingerprint of its data.
    """

    path: Path
    recipe: Mapping[str, Any]
    trials: Sequence[TrialResult]
    skipped: Mapping[str, int]
    ended: bool
    attempts: Sequence[Mapping[str, Any]]
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
    return RunRecord(
        path,
        config,
        [line for line in lines if "loss" in line],
        [line for line in lines if "validation_loss" in line],
        EVENTS.json_lines(storage, EVENTS_NAME),
        result,
    )


def _sweep(path: Path) -> SweepRecord:
    mapping = SWEEP_FILE.yaml(Storage.at(str(path)), "sweep.yaml")
    recipe = mapping["recipe"]
    target = quality(recipe.get("objectives") or [LOSS.metric])
    history, ended = read(path, seeds=recipe.get("seeds", 1), reports=recipe.get("reports", 1), target=target)
    data = mapping.get("fingerprints", {}).get("data", "")
    return SweepRecord(path, recipe, trial_results(history), history.reasons(), ended, attempts_of(mapping), data)
