"""Runs the segments of a sweep under Ray Tune: Tune places, starts and watches the processes, the controller decides.

A segment is a trial to Tune. What it suggests and does after each result is the controller's word, so nothing of Tune's
own state is needed after a kill.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import cloudpickle, tune
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tokenfree.core.errors import JobError
from tokenfree.core.settings import to_mapping
from tokenfree.train.ray.callbacks import unwrap
from tokenfree.train.ray.cluster import TUNE_LOGGERS, ray_environment
from tokenfree.train.sweep.control.controller import SweepController
from tokenfree.train.sweep.control.history import TrialState
from tokenfree.train.sweep.control.placement import Placement
from tokenfree.train.sweep.trials.trainable import Trial
from tokenfree.train.sweep.trials.trial_session import TrialSegment

MOST_SHORTAGES = 3  # of memory, after which a sweep goes on by itself


def run_segments(controller: SweepController, placement: Placement, data: Any, storage: Path) -> None:
    """Run segments until all trials have ended; `storage` is a folder for what Tune writes.

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
        "storage": str(storage / "worker_groups"),
    }
    with ray_environment({"TUNE_MAX_PENDING_TRIALS_PG": str(placement.concurrent)}, mute=TUNE_LOGGERS):
        for attempt in range(MOST_SHORTAGES + 1):
            segments = _SegmentSearcher(controller, placement, data, common)
            try:
                _tuner(segments, resources, name=f"tune-{attempt}", storage=storage).fit()
                return
            except RuntimeError as error:  # Tune gives up where Ray ends a process to save the machine
                if not isinstance(error.__cause__, OutOfMemoryError):
                    raise
            controller.restart()
    raise JobError(
        f"Ray ended trials {MOST_SHORTAGES + 1} times because memory ran out; make some free or give a lower "
        "--concurrent, and run the same command again: it goes on where this one stopped"
    )


def _tuner(segments: "_SegmentSearcher", resources: dict[str, float], *, name: str, storage: Path) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(Trial, resources),
        tune_config=tune.TuneConfig(
            search_alg=segments,
            scheduler=_ControlledScheduler(segments),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(storage),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials save by themselves
            failure_config=tune.FailureConfig(max_failures=0),  # another segment is the second attempt
        ),
    )


class _SegmentSearcher(Searcher):
    """Suggests segments to Tune, as many as have room."""

    def __init__(self, controller: SweepController, placement: Placement, data: Any, common: dict[str, Any]) -> None:
        super().__init__()
        self.controller = controller
        self._placement, self._data, self._common = placement, data, common
        self.names: dict[str, str] = {}  # of our trial, by the id of Tune's

    def __reduce__(self) -> Any:
        return _SegmentSearcher, (None, None, "", {})  # Tune pickles it for a restoration that never comes

    def suggest(self, trial_id: str) -> Any:
        """The next segment's config, None for none at the moment, or the mark of the end."""
        trial = self.controller.next_segment()
        if trial is None:
            return Searcher.FINISHED if self.controller.history.all_ended else None
        self.names[trial_id] = trial.name
        return {**self._common, "segment": asdict(self._segment(trial))}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: the scheduler has told the controller."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is what a sweep goes on from."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing; see `save`."""

    def _segment(self, trial: TrialState) -> TrialSegment:
        sweep = self.controller.sweep
        return TrialSegment(
            name=trial.name,
            recipe=to_mapping(sweep.recipe(trial.values, trial.seed)),
            data=self._data,
            folder=str(self.controller.folder(trial.name).resolve()),
            budget={key: value for key, value in asdict(sweep.budget).items() if value is not None},
            reports=sweep.reports,
            known=trial.report_number,
            threads=max(1, int(self._placement.needs.cpus)),
            gpu=self._placement.needs.gpus > 0,
        )


class _ControlledScheduler(FIFOScheduler):
    """Does with each segment what the controller says."""

    def __init__(self, segments: _SegmentSearcher) -> None:
        super().__init__()
        self._segments = segments

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        """Hand the report on; go on or end the segment."""
        goes_on = self._segments.controller.report(self._segments.names[trial.trial_id], json.loads(result["report"]))
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        """Hand the trial's own error on."""
        self._segments.controller.failed(self._segments.names[trial.trial_id], _own_error(trial))


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
    cause = unwrap(error).error
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
