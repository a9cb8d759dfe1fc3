"""Reads what the other commands left in a folder, for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from preprocess.errors import UserError
from preprocess.manifest import Manifest, load_manifest
from train.sweep.results import TABLE, read_progress, read_skipped
from train.sweep.trial_result import TrialResult


@dataclass(frozen=True)
class RunFolder:
    """A pretraining run: its resolved recipe, the lines of its metrics and events, and its result once it ended."""

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


@dataclass(frozen=True)
class SweepFolder:
    """A sweep: its recipe, its trials as far as they are, settings not tried by reason, and whether it has ended."""

    path: Path
    recipe: Mapping[str, Any]
    trials: Sequence[TrialResult]
    skipped: Mapping[str, int]
    ended: bool

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name


@dataclass(frozen=True)
class DataFolder:
    """A data directory, by its manifest."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name


Folder = RunFolder | SweepFolder | DataFolder


def load(path: Path) -> Folder:
    """Read a folder by the files in it.

    Raises:
        UserError: it is neither a run, nor a sweep, nor a data directory.
    """
    if (path / "metrics.jsonl").is_file():
        return _run(path)
    if (path / "sweep.yaml").is_file():
        return _sweep(path)
    if (path / "manifest.json").is_file():
        return DataFolder(path, load_manifest(str(path)))
    if not path.exists():
        raise UserError(f"{path}: no such folder")
    raise UserError(f"{path}: holds no metrics.jsonl (a run), sweep.yaml (a sweep) or manifest.json (data)")


def _run(path: Path) -> RunFolder:
    lines = _lines(path / "metrics.jsonl")
    config, result = path / "config.yaml", path / "result.json"
    return RunFolder(
        path,
        yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else {},
        [line for line in lines if "loss" in line],
        [line for line in lines if "validation_loss" in line],
        _lines(path / "events.jsonl"),
        json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None,
    )


def _sweep(path: Path) -> SweepFolder:
    recipe = yaml.safe_load((path / "sweep.yaml").read_text(encoding="utf-8"))["recipe"]
    return SweepFolder(path, recipe, read_progress(path), read_skipped(path), (path / TABLE).is_file())


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines; a last line that is being written is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
