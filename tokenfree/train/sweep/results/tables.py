"""What a sweep leaves beside its journal: `sweep.csv` (a row a trial), `trials.jsonl` (all their reports), `best.yaml`.

All of them are made from the journal, and nothing is read from them.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.journal import JOURNAL, read_history
from tokenfree.train.sweep.results.compare import best, front, rank
from tokenfree.train.sweep.results.costs import costs, front_amount
from tokenfree.train.sweep.results.trial_result import METRICS, TrialResult, knobs, shown
from tokenfree.train.sweep.space.targets import LOSS, SPEED, Target

if TYPE_CHECKING:
    from tokenfree.train.sweep.space.recipe import SweepRecipe

BEST = "best.yaml"  # a recipe
TABLE = "sweep.csv"  # written last: where it is, the sweep has ended
_NO_METRICS = frozenset({"report", "seed", "machine"})  # of a report: which one it is, of which trial, from where


def table(
    sweep: "SweepRecipe", trials: Sequence[TrialResult], *, targets: Sequence[Target] = (LOSS,), unit: str = "step"
) -> str:
    """The text of `sweep.csv`: trial, state, a column a knob, the last report, setting, seed, front, error.

    `front` is `yes` for settings that no other one beats: in all targets, or in quality and speed where there is only
    one.
    They are compared in the mean over seeds, at the amount of `unit` that at least three settings got to, and by the
    speed that equal models share, see costs.py.
    """
    amount = front_amount(trials, unit)
    ranked = [] if amount is None else rank(trials, target=targets[0], unit=unit, amount=amount)
    known = {SPEED.metric: {name: cost.speed for name, cost in costs(trials).items()}}
    asked = targets if len(targets) > 1 else (targets[0], SPEED)
    leading = [] if amount is None else front(ranked, asked, amount, unit, known=known)
    on_front = {trial.name for item in leading for trial in item.setting.trials}
    keys = sorted({*sweep.space, *knobs(trials)})
    more = sorted({name for trial in trials for name in trial.last} - {*METRICS, *_NO_METRICS})
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
        files[BEST] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    if skipped:
        files["skipped.json"] = json.dumps(dict(sorted(skipped.items())), indent=1) + "\n"
    files["trials.jsonl"] = "".join(json.dumps(asdict(trial)) + "\n" for trial in trials)
    files[TABLE] = table(sweep, trials, targets=targets, unit=unit)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]


def read(folder: Path, *, seeds: int, reports: int, target: Target = LOSS) -> tuple[History, bool]:
    """What is known of the sweep in `folder`, and whether it has ended; see `read_history`.

    Raises:
        UserError: it has ended, but its journal is gone.
    """
    ended = (folder / TABLE).is_file()
    if ended and not (folder / JOURNAL).is_file():
        raise UserError(f"{folder}: {JOURNAL} is gone, from which a sweep is read; put it back beside {TABLE}")
    return read_history(folder, seeds=seeds, reports=reports, target=target), ended
