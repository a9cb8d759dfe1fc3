"""Runs the legs of a sweep under Ray Tune: Tune places, starts and watches the processes, the conductor decides.

A leg is a trial to Tune. What it suggests and does after each result is the conductor's word, so nothing of Tune's own
state is needed after a kill.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import cloudpickle, tune
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from preprocess.errors import JobError
from preprocess.settings import to_mapping
from train.sweep.conductor import Conductor
from train.sweep.history import Record
from train.sweep.placement import Placement
from train.sweep.session import Leg
from train.sweep.trial import Trial

_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints banners at any verbosity
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal has it all
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is to interrupt here as everywhere
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_WAIT_POLICY": "passive",
}

MOST_SHORTAGES = 3  # of memory, after which a sweep goes on by itself


@contextlib.contextmanager
def quick_and_quiet(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set what Ray and Tune read from the environment, where the user has not, and silence what the journal tells.

    It is to be in force before Ray starts, so that its processes inherit it.
    """
    added = {name: value for name, value in {**_SETTINGS, **(more or {})}.items() if name not in os.environ}
    levels = {name: logging.getLogger(name).level for name in ("ray.tune", "ray.train")}
    os.environ.update(added)
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name in added:
            del os.environ[name]


def run_legs(conductor: Conductor, placement: Placement, data: str, storage: Path) -> None:
    """Run legs until all trials have ended; `storage` is a folder for what Tune writes.

    Raises:
        JobError: memory ran out again and again.
    """
    needs = placement.needs
    own = {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}
    # Ray Train places several workers by itself. Tune wants something for its own process: a mebibyte is always there.
    resources: dict[str, float] = {"memory": 2.0**20} if needs.workers > 1 else own
    common = {
        "workers": needs.workers,
        "cpus": needs.cpus,
        "gpus": needs.gpus,
        "storage": str(storage / "crews"),
    }
    with quick_and_quiet({"TUNE_MAX_PENDING_TRIALS_PG": str(placement.concurrent)}):
        for attempt in range(MOST_SHORTAGES + 1):
            legs = _Legs(conductor, placement, data, common)
            try:
                _tuner(legs, resources, name=f"tune-{attempt}", storage=storage).fit()
                return
            except RuntimeError as error:  # Tune gives up where Ray ends a process to save the machine
                if not isinstance(error.__cause__, OutOfMemoryError):
                    raise
            conductor.interrupted()
    raise JobError(
        f"Ray ended trials {MOST_SHORTAGES + 1} times because memory ran out; make some free or give a lower "
        "--concurrent, and run the same command again: it goes on where this one stopped"
    )


def _tuner(legs: "_Legs", resources: dict[str, float], *, name: str, storage: Path) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(Trial, resources),
        tune_config=tune.TuneConfig(
            search_alg=legs,
            scheduler=_Obedient(legs),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(storage),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials save by themselves
            failure_config=tune.FailureConfig(max_failures=0),  # another leg is the second attempt
        ),
    )


class _Legs(Searcher):
    """Suggests legs to Tune, as many as have room."""

    def __init__(self, conductor: Conductor, placement: Placement, data: str, common: dict[str, Any]) -> None:
        super().__init__()
        self.conductor = conductor
        self._placement, self._data, self._common = placement, data, common
        self.names: dict[str, str] = {}  # of our trial, by the id of Tune's

    def __reduce__(self) -> Any:
        return _Legs, (None, None, "", {})  # Tune pickles it for a restoration that never comes

    def suggest(self, trial_id: str) -> Any:
        """The next leg's config, None for none at the moment, or the mark of the end."""
        trial = self.conductor.next_leg()
        if trial is None:
            return Searcher.FINISHED if self.conductor.all_ended else None
        self.names[trial_id] = trial.name
        return {**self._common, "leg": asdict(self._leg(trial))}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: the scheduler has told the conductor."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is what a sweep goes on from."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing; see `save`."""

    def _leg(self, trial: Record) -> Leg:
        sweep = self.conductor.sweep
        return Leg(
            name=trial.name,
            recipe=to_mapping(sweep.recipe(trial.values, trial.seed)),
            data=self._data,
            folder=str(self.conductor.folder(trial.name).resolve()),
            budget={key: value for key, value in asdict(sweep.budget).items() if value is not None},
            reports=sweep.reports,
            known=trial.place,
            threads=max(1, int(self._placement.needs.cpus)),
            gpu=self._placement.needs.gpus > 0,
        )


class _Obedient(FIFOScheduler):
    """Does with each leg what the conductor says."""

    def __init__(self, legs: _Legs) -> None:
        super().__init__()
        self._legs = legs

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        """Hand the report on; go on or end the leg."""
        goes_on = self._legs.conductor.report(self._legs.names[trial.trial_id], json.loads(result["report"]))
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Hand the trial's own error on."""
        self._legs.conductor.failed(self._legs.names[trial.trial_id], _own_error(trial))


def _own_error(trial: TuneTrial) -> str:
    """What the trial itself raised, in one line: Ray wraps it in an error of its own.

    It is read where Tune has just written it; `get_pickled_error` looks where it will be copied to.
    """
    path = trial.pickled_error_file
    error = None if path is None else cloudpickle.loads(Path(path).read_bytes())
    if isinstance(error, RayActorError):
        return "the process of the trial died; look for a lack of memory or a kill from outside"
    if error is None:
        return "it failed without a word"
    cause: Any = error.cause if isinstance(error, RayTaskError) else error
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
