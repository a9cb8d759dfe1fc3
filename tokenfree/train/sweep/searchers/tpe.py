"""Settings that a model of the trials so far expects to be good: Optuna's tree-structured Parzen estimator."""

import itertools
import json
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.core.settings import fingerprint, settings
from tokenfree.train.sweep.control.history import History, TrialState
from tokenfree.train.sweep.control.slots import Searcher
from tokenfree.train.sweep.searchers import even
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space.knobs import Knob, Values
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.space.targets import objectives

_ASKED = 20  # suggestions in a row that cannot be run; the next one then comes from the even sequence


@settings
class Config(Searcher):
    """The next setting is where good trials are likelier than bad ones, after some settings that are spread evenly.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4; for two objectives Ozaki et al.
    2022, "Multiobjective Tree-Structured Parzen Estimator", JAIR 73. Trials that are still training count as bad ones
    (the constant liar of Ginsbourger et al. 2010), so that settings side by side differ.

    Attributes:
        name: `tpe`.
        startup: settings that are spread evenly before the model is asked.
    """

    name: Literal["tpe"] = "tpe"
    startup: Annotated[int, Field(ge=1)] = 8

    def foreseen(self, wanted: int) -> int:
        """The settings before the model is asked."""
        return min(wanted, self.startup)

    def candidates(self, sweep: SweepRecipe, history: History) -> Iterator[Values]:
        """Candidates for the next setting, a function of the seed and of what is known of the trials."""
        if len(history.settings()) >= self.startup:
            yield from itertools.islice(_suggestions(sweep, history), _ASKED)
        yield from even.Config().candidates(sweep, history)


def _suggestions(sweep: SweepRecipe, history: History) -> Iterator[Values]:
    import optuna  # takes a second, and only this searcher needs it

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known = [_known(sweep, trials) for trials in history.settings().values()]
    for attempt in itertools.count():
        seed = int(fingerprint({"seed": sweep.seed, "settings": len(known), "attempt": attempt})[:8], 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=0, multivariate=True, group=True, constant_liar=True
            )
        directions: list[Any] = [f"{target.mode}imize" for target in objectives(sweep.objectives)]
        study = optuna.create_study(directions=directions, sampler=sampler)
        study.add_trials(known)
        drawn = _draw(sweep, study.ask())
        yield spaces.active(sweep.space, drawn, sweep.fixed)


def _draw(sweep: SweepRecipe, trial: Any) -> Values:
    """A value of every knob; those that play no part are asked for nothing and left out later."""
    values: Values = {}
    for key in spaces.ordered(sweep.space):
        knob = sweep.space[key]
        drawn = {**{other: knob_.value(0.0) for other, knob_ in sweep.space.items()}, **values}
        if key not in spaces.active(sweep.space, drawn, sweep.fixed):
            values[key] = knob.value(0.0)
        elif knob.listed is not None and knob.integer is None:
            values[key] = json.loads(trial.suggest_categorical(key, _categories(knob)))
        elif knob.integer is not None:
            values[key] = trial.suggest_int(key, *knob.integer)
        else:
            low, high = knob.uniform or knob.log_uniform or (0.0, 0.0)
            value = trial.suggest_float(key, low, high, log=knob.log_uniform is not None)
            values[key] = spaces.rounded(value)
    return values


def _known(sweep: SweepRecipe, trials: list[TrialState]) -> Any:
    """A setting as Optuna knows one: its means over the seeds, or that it still runs, or that it came to nothing."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState as OptunaState
    from optuna.trial import create_trial

    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for key, value in trials[0].values.items():
        knob = sweep.space[key]
        if knob.integer is not None:
            params[key], distributions[key] = value, IntDistribution(*knob.integer)
        elif knob.listed is not None:
            params[key], distributions[key] = json.dumps(value), CategoricalDistribution(_categories(knob))
        else:
            low, high = knob.uniform or knob.log_uniform or (0.0, 0.0)
            params[key] = min(max(value, low), high)
            distributions[key] = FloatDistribution(low, high, log=knob.log_uniform is not None)
    given: dict[str, Any] = {"params": params, "distributions": distributions}
    if not all(trial.ended for trial in trials):
        return create_trial(**given, state=OptunaState.RUNNING)
    reported = [trial for trial in trials if trial.reports and trial.state != "failed"]
    if not reported:
        return create_trial(**given, state=OptunaState.FAIL)
    means = [sum(trial.last[name] for trial in reported) / len(reported) for name in sweep.objectives]
    if len(means) > 1 or all(trial.state == "finished" for trial in reported):
        return create_trial(**given, values=means, state=OptunaState.COMPLETE)
    # Stopped early: Optuna ranks those behind the finished ones, by how far they came and their loss there.
    report_number = min(trial.report_number for trial in reported)
    return create_trial(**given, intermediate_values={report_number: means[0]}, state=OptunaState.PRUNED)


def _categories(knob: Knob) -> tuple[str, ...]:
    """As text: Optuna takes no lists and mappings, and holds 1 and true for equal."""
    return tuple(json.dumps(value) for value in knob.listed or ())
