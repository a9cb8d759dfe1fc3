"""The settings that a sweep tries, without repeats and without invalid ones, and the order of its trials.

All of this is a function of the sweep and its history, so a killed sweep resumes with the same settings. For
this reason Optuna is called here, instead of through Tune's OptunaSearch, which keeps its study in memory.
"""

import functools
import itertools
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from tokenfree.core.errors import UserError, logger
from tokenfree.core.settings_values import fingerprint
from tokenfree.core.stored_files import cut_torn_line
from tokenfree.train.batches import counter_random as random
from tokenfree.train.sweep import recipe as spaces
from tokenfree.train.sweep.history import (
    JOURNAL,
    Event,
    History,
    Report,
    TrialState,
    by_setting,
    journal_line,
    read_history,
)
from tokenfree.train.sweep.recipe import DEFAULT_TRIALS, Hyperparameter, SweepRecipe, Tpe, Values, objectives
from tokenfree.train.sweep.subjects import Subject

Progress = Callable[[Event, History], None]  # called with every event and the state, which changes later
CANDIDATES_PER_TRIAL = 50  # candidates examined per trial, before the search space counts as exhausted
# After this many suggestions in a row that cannot be run, the next one comes from the even sequence.
_MAX_SUGGESTIONS = 20
# Settings, which takes minutes to plan.
_MAX_GRID_SETTINGS = 100_000
_BELOW_1 = 1 - 2.0**-53


@dataclass
class Proposer:
    """A source of the next setting, and of the reasons why settings are skipped."""

    sweep: SweepRecipe
    subject: Subject

    @functools.cached_property
    def measure(self) -> dict[str, Any]:
        """Values that decide how the metric is measured, from the base.

        All trials must have the same ones.
        """
        return dict(self.subject.measure(self.sweep.recipe({})))

    def new_settings(self, history: History) -> Iterator[tuple[Values, list[str]]]:
        """Yield settings that `history` does not have, each with the reasons why it cannot be run."""
        texts = {_text(values) for values in (*history.proposed, *(values for values, _ in history.skipped))}
        max_candidates = (
            None
            if is_whole_grid(self.sweep)
            else CANDIDATES_PER_TRIAL * (self.sweep.trials or DEFAULT_TRIALS)
        )
        for values in itertools.islice(candidates(self.sweep, history), max_candidates):
            text = _text(values)
            if text not in texts:
                texts.add(text)
                yield values, self.problems(values)

    def problems(self, values: Values) -> list[str]:
        """Return the reasons why a setting cannot be run, a line each."""
        try:
            recipe = self.sweep.recipe(values)
            problems = self.subject.problems(recipe)
            measured = self.subject.measure(recipe)
        except UserError as error:
            return [str(error)]
        return problems + [
            f"{key}: other values would change what is validated, so that trials could not be compared"
            for key, value in self.measure.items()
            if measured[key] != value
        ]


def plan(proposer: Proposer) -> History:
    """Return the history of a sweep that has proposed all settings that do not depend on results, and run none.

    Raises UserError with the reasons if fewer settings can be run than requested, or at most half of a grid.
    Without a request, a space with fewer different settings than the default is tried as a whole.
    """
    sweep = proposer.sweep
    whole = is_whole_grid(sweep)
    if whole and (number := spaces.num_combinations(sweep.space)) > _MAX_GRID_SETTINGS:
        raise UserError(f"space: the grid has {number:,} settings. Give `trials`, or another searcher.")
    if sweep.searcher.name == "grid" and sweep.trials and sweep.trials < spaces.num_combinations(sweep.space):
        logger.warning(
            "trials: the first %d settings of the grid are tried, not all combinations", sweep.trials
        )
    num_settings = None if whole else sweep.trials or DEFAULT_TRIALS
    foreseen = num_foreseen(sweep, num_settings or 0)
    history = History(seeds=1, reports=sweep.reports)
    proposed = history.proposed
    for values, problems in proposer.new_settings(history):
        if problems:
            history.skipped.append((values, tuple(problems)))
        else:
            proposed.append(values)
        if len(proposed) == foreseen and not whole:
            break
    reasons = "; ".join(sorted(history.reasons())) or "the space holds no more different settings"
    exhausted = len(proposed) < foreseen
    if not proposed or (exhausted and (sweep.trials is not None or history.skipped)):
        raise UserError(
            f"trials: only {len(proposed)} of the settings can be run ({reasons}). Lower trials or widen the space."
        )
    if sweep.searcher.name == "grid" and len(history.skipped) >= len(proposed):
        tried = len(proposed) + len(history.skipped)
        raise UserError(
            f"space: {len(history.skipped)} of {tried} settings of the grid cannot be run ({reasons}). Leave out the "
            "values that do not fit, or give their keys a condition (when)."
        )
    history.num_settings = len(proposed) if num_settings is None or exhausted else num_settings
    return history


def is_whole_grid(sweep: SweepRecipe) -> bool:
    """Return True if all settings of a finite search space are tried."""
    return sweep.trials is None and sweep.searcher.name == "grid"


def num_foreseen(sweep: SweepRecipe, num_settings: int) -> int:
    """Return how many of `num_settings` settings do not depend on reports of trials."""
    return min(num_settings, sweep.searcher.startup) if isinstance(sweep.searcher, Tpe) else num_settings


def candidates(sweep: SweepRecipe, history: History) -> Iterator[Values]:
    """Yield settings in the order in which they would be tried, including repeats and settings that cannot be run."""
    if sweep.searcher.name == "grid":
        for number in range(spaces.num_combinations(sweep.space)):
            yield spaces.active(sweep.space, spaces.combination(sweep.space, number), sweep.fixed)
        return
    if isinstance(sweep.searcher, Tpe) and len(history.proposed) >= sweep.searcher.startup:
        yield from itertools.islice(_suggestions(sweep, history), _MAX_SUGGESTIONS)
    points = _random_points(sweep) if sweep.searcher.name == "random" else _even_points(sweep)
    grid = {
        key: hyperparameter for key, hyperparameter in sweep.space.items() if hyperparameter.grid is not None
    }
    for number, point in enumerate(points):
        drawn = {
            key: sweep.space[key].value(quantile)
            for key, quantile in zip(sorted(sweep.space), point, strict=True)
        }
        if sweep.searcher.name != "random":
            drawn |= spaces.combination(grid, number)
        yield spaces.active(sweep.space, drawn, sweep.fixed)


def _even_points(sweep: SweepRecipe) -> Iterator[list[float]]:
    """Yield the points of a scrambled Sobol sequence.

    Optuna's QMC sampler draws choices at random instead.
    """
    engine = torch.quasirandom.SobolEngine(len(sweep.space), scramble=True, seed=sweep.seed)
    while True:
        yield engine.draw(dtype=torch.float64)[0].clamp(max=_BELOW_1).tolist()


def _random_points(sweep: SweepRecipe) -> Iterator[list[float]]:
    for number in itertools.count():
        yield random.uniform(sweep.seed, "sweep settings", np.array([number]), len(sweep.space))[0].tolist()


def _suggestions(sweep: SweepRecipe, history: History) -> Iterator[Values]:
    # Takes a second, and only this searcher needs it.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {key: _distribution(sweep.space[key]) for key in sorted(sweep.space)}
    groups = by_setting(history.trials.values())
    observed = [_optuna_trial(sweep, distributions, trials) for trials in groups.values()]
    seed = int(fingerprint({"seed": sweep.seed, "settings": len(observed)})[:8], 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=0, multivariate=True, group=True, constant_liar=True
        )
    directions: list[Any] = [f"{target.mode}imize" for target in objectives(sweep.objectives)]
    study = optuna.create_study(directions=directions, sampler=sampler)
    study.add_trials(observed)
    # Optuna treats each suggestion as a running trial, so the next suggestion differs.
    while True:
        params = study.ask(distributions).params
        drawn = {key: _value(sweep.space[key], param) for key, param in params.items()}
        yield spaces.active(sweep.space, drawn, sweep.fixed)


def _distribution(hyperparameter: Hyperparameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if hyperparameter.integer is not None:
        return IntDistribution(*hyperparameter.integer)
    # As text, because Optuna takes no lists and mappings, and treats 1 and true as equal.
    if hyperparameter.listed is not None:
        return CategoricalDistribution([json.dumps(value) for value in hyperparameter.listed])
    low, high = hyperparameter.uniform or hyperparameter.log_uniform or (0.0, 0.0)
    return FloatDistribution(low, high, log=hyperparameter.log_uniform is not None)


def _value(hyperparameter: Hyperparameter, param: Any) -> Any:
    if hyperparameter.listed is None:
        return hyperparameter.rounded(param)
    return param if hyperparameter.integer is not None else json.loads(param)


def _param(hyperparameter: Hyperparameter, value: Any) -> Any:
    is_text = hyperparameter.listed is not None and hyperparameter.integer is None
    return json.dumps(value) if is_text else value


def _optuna_trial(sweep: SweepRecipe, distributions: dict[str, Any], trials: list[TrialState]) -> Any:
    from optuna.trial import TrialState as OptunaState
    from optuna.trial import create_trial

    values = trials[0].values
    fields: dict[str, Any] = {
        "params": {key: _param(sweep.space[key], value) for key, value in values.items()},
        "distributions": {key: distributions[key] for key in values},
    }
    if not all(trial.ended for trial in trials):
        return create_trial(**fields, state=OptunaState.RUNNING)
    reported = [trial for trial in trials if trial.reports and trial.state != "failed"]
    if not reported:
        return create_trial(**fields, state=OptunaState.FAIL)
    means = [fmean(trial.last[name] for trial in reported) for name in sweep.objectives]
    if len(means) > 1 or all(trial.state == "finished" for trial in reported):
        return create_trial(**fields, values=means, state=OptunaState.COMPLETE)
    # Optuna ranks settings that were stopped early behind the finished ones, by their last report and its
    # loss.
    report_number = min(trial.report_number for trial in reported)
    return create_trial(**fields, intermediate_values={report_number: means[0]}, state=OptunaState.PRUNED)


def _text(values: Values) -> str:
    return json.dumps(values, sort_keys=True)


def _skip_event(values: Values, reasons: Sequence[str]) -> Event:
    return {"event": "skip", "values": values, "reasons": list(reasons)}


class SweepJournal:
    """The journal of a sweep, independent of Ray: it chooses the next trial and records all events.

    `planned` comes from `plan`. `progress` is called with every event and the state, which changes later.
    """

    def __init__(self, proposer: Proposer, planned: History, folder: Path, progress: Progress) -> None:
        self.sweep, self.subject = proposer.sweep, proposer.subject
        self._proposer, self._planned, self._progress = proposer, planned, progress
        self._folder = folder

    def start(self) -> None:
        """Read earlier events.

        Trials that have not ended resume. Raises JobError if the journal is damaged.
        """
        cut_torn_line(self._folder / JOURNAL)
        self._journal = (self._folder / JOURNAL).open("ab")
        sweep = self.sweep
        self.history = read_history(
            self._folder, seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality
        )
        self.write({"event": "start", "settings": self._planned.num_settings})
        already_skipped = {_text(values) for values, _ in self.history.skipped}
        new = (item for item in self._planned.skipped if _text(item[0]) not in already_skipped)
        self.write(*(_skip_event(values, reasons) for values, reasons in new))

    def close(self) -> None:
        self._journal.close()

    def folder(self, trial: str) -> Path:
        return self._folder / "trials" / trial

    def next_trial(self) -> TrialState | None:
        """Return the next trial to run, with its reports so far, and record it as running.

        None if there is none.
        """
        name = self._idle()
        if name is None and self._propose():
            name = self._idle()
        if name is None:
            return None
        self.write({"event": "begin", "trial": name})
        return self.history.trials[name]

    def report(self, name: str, report: Report, *, stop: bool = False) -> None:
        """Record a report of a running trial, and whether the trial stops. Known reports are ignored."""
        trial = self.history.trials[name]
        if trial.running and report["report"] > trial.report_number:
            self.write(
                {"event": "report", "trial": name, "verdict": "stop" if stop else "go", "report": report}
            )
            self._clean_up(name)

    def stop(self, name: str) -> None:
        """Record that a scheduler stopped a trial that waited. Do nothing if the trial has ended."""
        if name in self.history.unfinished:
            self.write({"event": "stop", "trial": name})
            self._clean_up(name)

    def failed(self, name: str, error: str) -> None:
        """Record that a running trial failed. It runs once more unless it failed before."""
        self.write({"event": "failure", "trial": name, "error": error})
        self._clean_up(name)

    def write(self, *events: Event) -> None:
        self._journal.writelines(map(journal_line, events))
        self._journal.flush()
        os.fsync(self._journal.fileno())
        for event in events:
            self.history.record(event)
            self._progress(event, self.history)

    def _idle(self) -> str | None:
        return next((trial.name for trial in self.history.unfinished.values() if not trial.running), None)

    def _propose(self) -> bool:
        """Record the next setting, and settings before it that cannot be run.

        Return False if there is none.
        """
        number = len(self.history.proposed)
        if self.history.all_proposed:
            return False
        if number < len(self._planned.proposed):
            settings = iter([(self._planned.proposed[number], list[str]())])
        else:
            settings = self._proposer.new_settings(self.history)
        for values, reasons in settings:
            if not reasons:
                self.write({"event": "propose", "setting": number, "values": values})
                return True
            self.write(_skip_event(values, reasons))
        self.write({"event": "exhausted"})
        return False

    def _clean_up(self, name: str) -> None:
        """Remove the checkpoints of a trial that was stopped or failed, because it is never resumed."""
        if self.history.trials[name].state in ("stopped", "failed"):
            shutil.rmtree(self.folder(name), ignore_errors=True)
