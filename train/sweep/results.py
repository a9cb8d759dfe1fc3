"""What a sweep leaves: `sweep.csv` (a row a trial), `trials.jsonl` (with all their reports) and `best.yaml`."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from preprocess.storage import Storage
from train.sweep.config import SweepRecipe

TABLE = "sweep.csv"  # written last: where it is, the sweep has ended
METRICS = ("step", "validation_loss", "validation_accuracy", "characters_per_second", "train_seconds", "parameters")


@dataclass(frozen=True)
class TrialResult:
    """One trial: its values by dotted key, how it ended, and its reports in order (`METRICS` and more)."""

    name: str
    values: Mapping[str, Any]
    state: str  # finished, stopped (early, by the scheduler) or failed
    reports: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    error: str = ""

    @property
    def last(self) -> Mapping[str, Any]:
        """The last report; empty where there was none."""
        return self.reports[-1] if self.reports else {}


def best(trials: Iterable[TrialResult]) -> TrialResult | None:
    """The trial with the lowest last validation loss among those that trained longest; None if none reported.

    A trial that was stopped early is not compared with one that went on: its loss belongs to fewer steps.
    """
    reported = [trial for trial in trials if trial.reports and trial.state != "failed"]
    if not reported:
        return None
    longest = max(trial.last["step"] for trial in reported)
    return min(
        (trial for trial in reported if trial.last["step"] == longest),
        key=lambda trial: (trial.last["validation_loss"], trial.name),
    )


def table(sweep: SweepRecipe, trials: Sequence[TrialResult]) -> str:
    """The text of `sweep.csv`: trial, state, a column a knob, the metrics of the last report, the error."""
    knobs = sorted(sweep.space)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["trial", "state", *knobs, *METRICS, "error"])
    for trial in trials:
        metrics = [_short(trial.last.get(name, "")) for name in METRICS]
        writer.writerow([trial.name, trial.state, *(trial.values[knob] for knob in knobs), *metrics, trial.error])
    return file.getvalue()


def write(folder: Path, sweep: SweepRecipe, trials: Sequence[TrialResult]) -> list[Path]:
    """Write the best recipe, if any trial came to something, and the tables, `sweep.csv` last; return the files."""
    files = {}
    winner = best(trials)
    if winner is not None:
        note = f"# The best of {len(trials)} trials ({winner.name}): {json.dumps(dict(winner.values))}\n"
        files["best.yaml"] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    files["trials.jsonl"] = "".join(json.dumps(asdict(trial)) + "\n" for trial in trials)
    files[TABLE] = table(sweep, trials)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]


def read(folder: Path) -> list[TrialResult] | None:
    """The trials of a sweep that has ended; None for one that has not."""
    if not (folder / TABLE).exists():
        return None
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return [TrialResult(**json.loads(line)) for line in lines]


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
