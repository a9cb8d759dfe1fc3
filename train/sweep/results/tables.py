"""What a sweep leaves: `sweep.csv` (a row a trial), `trials.jsonl` (with all their reports) and `best.yaml`."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from preprocess.storage import Storage
from train.sweep.compare import LOSS, SPEED, Target, best, front, full_amount, rank
from train.sweep.trial_result import METRICS, TrialResult, from_mapping, knobs, shown

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe

TABLE = "sweep.csv"  # written last: where it is, the sweep has ended
PROGRESS = "progress.jsonl"
_MARKS = frozenset({"event", "trial", "values", "ended", "state", "setting", "seed", "error", "report"})
_OF_EVENT = {"waiting": "waiting", "begin": "running", "report": "running", "end": "stopped", "error": "failed"}


def table(
    sweep: "SweepRecipe", trials: Sequence[TrialResult], *, targets: Sequence[Target] = (LOSS,), unit: str = "step"
) -> str:
    """The text of `sweep.csv`: trial, state, a column a knob, the last report, setting, seed, front, error.

    `front` is `yes` for settings that no other one beats: in all targets, or in loss and speed where there is only one.
    They are compared in the mean over seeds, at the same amount of `unit`.
    """
    amount = full_amount(trials, unit)
    ranked = rank(trials, target=targets[0], unit=unit, amount=amount)
    leading = [] if amount is None else front(ranked, targets if len(targets) > 1 else (LOSS, SPEED), amount, unit)
    on_front = {trial.name for item in leading for trial in item.setting.trials}
    keys = sorted({*sweep.space, *knobs(trials)})
    more = sorted({name for trial in trials for name in trial.last} - {*METRICS, *_MARKS})
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["trial", "state", *keys, *METRICS, *more, "setting", "seed", "front", "error"])
    for trial in trials:
        values = [shown(trial.values.get(key)) for key in keys]
        metrics = [shown(trial.last.get(name)) for name in (*METRICS, *more)]
        marks = [shown(trial.setting), shown(trial.seed), "yes" if trial.name in on_front else ""]
        writer.writerow([trial.name, trial.state, *values, *metrics, *marks, trial.error])
    return file.getvalue()


def write(
    folder: Path,
    sweep: "SweepRecipe",
    trials: Sequence[TrialResult],
    *,
    skipped: Mapping[str, int] | None = None,
    targets: Sequence[Target] = (LOSS,),
    unit: str = "step",
) -> list[Path]:
    """Write the best recipe, if any trial came to something, and the tables, `sweep.csv` last; return the files.

    Args:
        folder: of the sweep.
        sweep: makes the recipe of the best values.
        trials: all of them, in order.
        skipped: how many settings were not tried, by reason; kept in `skipped.json`.
        targets: the first one decides what is best.
        unit: the field of the reports that the budget counts.
    """
    files = {}
    winner = best(trials, target=targets[0], unit=unit)
    if winner is not None:
        note = f"# The best of {len(trials)} trials ({winner.name}): {json.dumps(dict(winner.values))}\n"
        files["best.yaml"] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    if skipped:
        files["skipped.json"] = json.dumps(dict(sorted(skipped.items())), indent=1) + "\n"
    files["trials.jsonl"] = "".join(json.dumps(asdict(trial)) + "\n" for trial in trials)
    files[TABLE] = table(sweep, trials, targets=targets, unit=unit)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]


def read(folder: Path) -> list[TrialResult] | None:
    """The trials of a sweep that has ended; None for one that has not."""
    if not (folder / TABLE).exists():
        return None
    return [from_mapping(line) for line in _lines(folder / "trials.jsonl")]


def read_skipped(folder: Path) -> dict[str, int]:
    """How many settings were not tried, by reason."""
    path = folder / "skipped.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note_progress(folder: Path, line: Mapping[str, Any]) -> None:
    """Append a line to the sweep's `progress.jsonl`, from which a sweep that still runs is reported.

    Args:
        folder: of the sweep.
        line: `event` (`waiting`, `begin`, `report`, `end` or `error`), `trial`, `values`, and the fields of the
            report; optional are `setting`, `seed`, `state` (one of `STATES`) and `error`.
    """
    with (folder / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(dict(line)) + "\n")


def read_progress(folder: Path) -> list[TrialResult]:
    """The trials as far as they are in a sweep that runs, was killed, or has ended."""
    ended = read(folder)
    if ended is not None:
        return ended
    trials: dict[str, dict[str, Any]] = {}
    for line in _lines(folder / PROGRESS):
        trial = trials.setdefault(line["trial"], {"name": line["trial"], "values": {}, "reports": {}, "error": ""})
        trial |= {name: line[name] for name in ("values", "setting", "seed", "error") if name in line}
        if line["event"] == "report":
            trial["reports"][line.get("step")] = {name: value for name, value in line.items() if name not in _MARKS}
        trial["state"] = line.get("state") or _OF_EVENT[line["event"]]
    return [from_mapping({**trial, "reports": tuple(trial["reports"].values())}) for _, trial in sorted(trials.items())]


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines; a last line that is being written is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
