"""What the settings of a task come to: their scores over the seeds, and those of the best one on the test set.

Only the runs of the chosen setting are evaluated on the test set, by their best checkpoints, when all trials have
ended. Each of them then is a fine-tuning run as `tokenfree finetune` leaves one: trials/NAME holds config.yaml,
result.json and predictions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenfree.core.files import write_atomically
from tokenfree.core.settings import build, merge, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MODEL
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.runs.config import InitFrom, RunConfig
from tokenfree.train.runs.run import RunFolder
from tokenfree.train.sweep.control.sweep_files import SCORES
from tokenfree.train.sweep.results.compare import full_amount, mean_interval, rank, settings
from tokenfree.train.sweep.results.trial_result import TrialResult
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.subjects.finetuning import FinetuningSubject


def evaluate_chosen(
    sweep: SweepRecipe, subject: FinetuningSubject, trials: Sequence[TrialResult], folder: Path
) -> None:
    """Evaluate the runs of the best setting by the development set, and write result.json; nothing where none ended.

    What an earlier, killed command has evaluated is taken as it is.
    """
    unit = sweep.budget.unit
    amount = full_amount(trials, unit)
    ranked = rank(trials, target=sweep.quality, unit=unit, amount=amount)
    if not ranked or amount is None:
        return
    chosen = ranked[0].setting
    runs = [trial for trial, _ in chosen.reached(sweep.quality.metric, amount, unit)]
    found = [_evaluated(sweep, subject, trial, folder / "trials" / trial.name) for trial in runs]
    metric = next(iter(found[0]["dev"]))  # the main one stands first
    splits = [split for split in ("dev", "test") if split in found[0]]
    result = {
        "task": found[0]["task"],
        "metric": metric,
        "best": {"setting": chosen.index, "values": dict(chosen.values), "trials": [trial.name for trial in runs]},
        **{split: {name: fmean(values) for name, values in _scores(found, split).items()} for split in splits},
        "settings": [
            {
                "setting": setting.index,
                "values": dict(setting.values),
                "dev": cell([value for _, value in setting.reached(sweep.quality.metric, amount, unit)]),
                "test": cell(_scores(found, "test").get(metric, []) if setting.index == chosen.index else []),
            }
            for setting in settings(trials)
        ],
    }
    write_atomically(folder / SCORES, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def cell(values: Sequence[float]) -> dict[str, Any] | None:
    """The scores of seeds, their mean and half of its 95% interval, which one seed has not; None without any."""
    found = mean_interval(values)
    return None if found is None else {"mean": found.mean, "interval": found.half, "seeds": list(values)}


def _scores(found: Sequence[Mapping[str, Any]], split: str) -> dict[str, list[float]]:
    """By name, what the runs of a setting came to; only scores that all of them have."""
    results = [result.get(split, {}) for result in found]
    return {name: [each[name] for each in results] for name in results[0] if all(name in each for each in results)}


def _evaluated(sweep: SweepRecipe, subject: FinetuningSubject, trial: TrialResult, folder: Path) -> dict[str, Any]:
    """The result of a trial's run, evaluated if it is not yet."""
    run = RunFolder(folder)
    result = run.result()
    if result is None:
        mapping = merge(to_mapping(sweep.recipe(trial.values, trial.seed)), {"train": {"steps": trial.last["step"]}})
        recipe = build(FinetuneRecipe, mapping, source=trial.name)
        files = subject.files
        given = None if subject.init_from is None else InitFrom(subject.init_from, subject.sha256)
        run.write_config(RunConfig(recipe, files.paths.get("train", ""), files.content, given))
        if files.model is not None and recipe.model.embedder.symbols == "subwords":
            Storage.at(str(folder)).write_bytes(MODEL, files.model)
        # It is trained already: what is left of a run to do is its evaluation.
        finetune(recipe, files.paths, str(folder), init_from=subject.init_from, trust_code=subject.trust_code)
        result = run.result()
    assert result is not None, "a finished run has a result"
    return result
