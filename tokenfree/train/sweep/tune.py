"""Run the trials of a sweep under Ray Tune, in the child process that is connected to Ray (train/ray/child.py).

Tune places, starts and watches the trials, and its scheduler stops them. Each command makes a new `Tuner`.
`Tuner.restore` accepts no scheduler, so ASHA would start with empty rungs, and Tune has lost the seconds before a
SIGKILL. The new scheduler gets all reports of the journal. Trials that have not ended are suggested again and resume
from their own checkpoints.
"""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ray import cloudpickle, tune
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search import Searcher

from tokenfree.core.errors import JobError
from tokenfree.core.settings import to_mapping
from tokenfree.train.ray.callbacks import unwrap
from tokenfree.train.ray.child import Link
from tokenfree.train.ray.cluster import (
    TUNE_LOGGERS,
    RayLost,
    Session,
    ended_where_cut_off,
    ray_environment,
    ray_session,
    watched,
)
from tokenfree.train.sweep.history import RAY, History, TrialState
from tokenfree.train.sweep.planning import Placement, cluster_nodes, find_placement
from tokenfree.train.sweep.recipe import Asha, MedianStopping, SweepRecipe
from tokenfree.train.sweep.search import Course, Plan, Proposer
from tokenfree.train.sweep.trial import TrialSegment, TrialSession

if TYPE_CHECKING:
    from tokenfree.train.sweep.workers import WorkerGroup

MOST_SHORTAGES = 3  # number of times that a sweep resumes by itself after memory ran out
_NUMBER, _QUALITY = "report_number", "quality"  # fields of a result that schedulers read


def lead(link: Link, plans: bytes, folder: str) -> str | None:
    """Train the trials of a sweep, and send the pickled session and every event of the journal over `link`.

    Args:
        link: Link to the command.
        plans: Pickled return value of `prepare`.
        folder: Folder of the sweep.

    Returns:
        Description of the part of Ray that was lost; an empty text if it is unknown; None if all trials have ended.

    Raises:
        UserError: The search space and the cluster do not fit together.
        JobError: Ray could not be started or reached, or memory ran out repeatedly.
    """
    link.listen(lambda message: None)  # this process ends with the command
    proposer, planned = pickle.loads(plans)
    with ray_environment(mute=TUNE_LOGGERS):
        try:
            with ray_session() as session:
                link.send(pickle.dumps(session))
                _train(proposer, planned, Path(folder), link, session)
        except RayLost as error:
            return str(error)
        except RayError:  # an actor that does not answer
            return ""
    return None


def _train(proposer: Proposer, planned: Plan, folder: Path, link: Link, session: Session) -> None:
    placement = find_placement(proposer.sweep, planned.settings, cluster_nodes())
    course = Course(proposer, planned, folder, lambda event, history: link.send(event))
    try:
        course.start()
        watched(partial(run_trials, course, placement, folder / RAY), session)
    finally:
        course.close()


def run_trials(course: Course, placement: Placement, storage: Path) -> None:
    """Run trials until all have ended. `storage` is a folder for the files of Tune.

    Raises:
        JobError: Memory ran out repeatedly.
    """
    with ray_environment({"TUNE_MAX_PENDING_TRIALS_PG": str(placement.concurrent)}, mute=TUNE_LOGGERS):
        for attempt in range(MOST_SHORTAGES + 1):
            try:
                _tuner(_Trials(course, placement, storage), name=f"tune-{attempt}", storage=storage).fit()
                return
            except RuntimeError as error:  # Tune gives up if Ray kills a process to free memory
                if not isinstance(error.__cause__, OutOfMemoryError):
                    raise
            course.restart()
    raise JobError(
        f"Ray ended trials {MOST_SHORTAGES + 1} times because memory ran out; make some free or give a lower "
        "--concurrent, and run the same command again: it resumes the sweep"
    )


def _tuner(trials: _Trials, *, name: str, storage: Path) -> tune.Tuner:
    needs = trials.placement.needs
    own = {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}
    # Ray Train places several workers by itself. Tune needs a resource for its own process, and one MiB always fits.
    resources: dict[str, float] = {"memory": 2.0**20} if needs.workers > 1 else own
    return tune.Tuner(
        tune.with_resources(Trainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=trials,
            scheduler=make_scheduler(trials.course.sweep, trials.course.history),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(storage),
            verbose=0,
            callbacks=[_Record(trials)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials save by themselves
            failure_config=tune.FailureConfig(max_failures=0),  # a failed trial is suggested once more instead
        ),
    )


class _Trials(Searcher):
    """A searcher that suggests to Tune first the trials that have not ended, then new ones, as many as fit."""

    def __init__(self, course: Course, placement: Placement, storage: Path) -> None:
        super().__init__()
        self.course, self.placement, self._storage = course, placement, storage

    def __reduce__(self) -> Any:
        return Searcher, ()  # Tune pickles the searcher to restore it, which never happens here

    def suggest(self, trial_id: str) -> Any:
        """Return the config of the next trial, None if there is none at the moment, or the mark of the end."""
        running = sum(trial.running for trial in self.course.history.trials.values())
        trial = self.course.next_trial() if running < self.placement.concurrent else None
        if trial is None:
            return Searcher.FINISHED if self.course.history.all_ended else None
        needs = self.placement.needs
        return {
            "segment": self._segment(trial),
            "metric": self.course.sweep.quality.metric,
            "group": {"workers": needs.workers, "cpus": needs.cpus, "gpus": needs.gpus, "storage": str(self._storage)},
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing, because the callback has recorded the end."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because a sweep resumes from its journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, because a sweep resumes from its journal."""

    def _segment(self, trial: TrialState) -> TrialSegment:
        sweep, needs = self.course.sweep, self.placement.needs
        return TrialSegment(
            name=trial.name,
            recipe=to_mapping(sweep.recipe(trial.values, trial.seed)),
            subject=self.course.subject.unread(),
            folder=str(self.course.folder(trial.name).resolve()),
            budget=sweep.budget,
            reports=sweep.reports,
            known=trial.report_number,
            threads=max(1, int(needs.cpus)),
            gpu=needs.gpus > 0,
        )


class _Record(tune.Callback):
    """A callback that records Tune's reports before Tune acts on them."""

    def __init__(self, trials: _Trials) -> None:
        self._trials = trials

    def on_trial_result(self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Record a report, and whether the scheduler stops the trial."""
        self._trials.course.report(_name(trial), json.loads(result["report"]), stop=result["done"])

    def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        """Record the trial's own error."""
        self._trials.course.failed(_name(trial), _own_error(trial))


def _name(trial: Trial) -> str:
    """Return the sweep's name of a trial of Tune, whose own ids change after a kill."""
    return trial.config["segment"].name


def make_scheduler(sweep: SweepRecipe, history: History) -> TrialScheduler:
    """Return the scheduler of Tune that the sweep names, after it has received the reports in `history`."""
    named, scheduler = sweep.scheduler, None
    given: dict[str, Any] = {"time_attr": _NUMBER, "metric": _QUALITY, "mode": sweep.quality.mode}
    if isinstance(named, Asha):
        longest = max(sweep.reports, named.grace)
        given |= {"max_t": longest, "grace_period": named.grace, "reduction_factor": named.reduction}
        scheduler = _NamedAsha(**given, stop_last_trials=False)
    elif isinstance(named, MedianStopping):
        given |= {"grace_period": named.grace, "min_samples_required": named.min_trials}
        given |= {"min_time_slice": float("inf")}  # no trial is paused
        scheduler = _NamedMedian(**given)
    if scheduler is None:
        return FIFOScheduler()
    for trial in history.trials.values():
        for report in trial.reports:
            scheduler.recall(trial.name, _result(report, sweep.quality.metric))
    return scheduler


class _Name(NamedTuple):
    """A trial with the only field that schedulers read."""

    trial_id: str


def _named(name: str) -> Any:
    return _Name(name)


class _ByName(FIFOScheduler):
    """A base of schedulers that identifies trials by the sweep's names, so that reports from before a kill count.

    The rungs of ASHA and the means of the median rule depend on the set of reports, not on their order.
    """

    def recall(self, name: str, result: dict[str, Any]) -> None:
        """Record a report of an earlier command, without a decision."""
        controller: Any = None  # neither scheduler uses it here
        super().on_trial_add(controller, _named(name))
        super().on_trial_complete(controller, _named(name), result)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_add(tune_controller, _named(_name(trial)))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        return super().on_trial_result(tune_controller, _named(_name(trial)), result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, _named(_name(trial)), result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_remove(tune_controller, _named(_name(trial)))


class _NamedAsha(_ByName, ASHAScheduler):
    pass


class _NamedMedian(_ByName, MedianStoppingRule):
    pass


def _result(report: Any, metric: str) -> dict[str, Any]:
    """Return the fields of a report that a scheduler reads."""
    return {_NUMBER: report["report"], _QUALITY: report[metric]}


def _own_error(trial: Trial) -> str:
    """Return the trial's own error in one line, without the error that Ray wraps it in.

    The error is read from the file that Tune has just written. `get_pickled_error` reads the place that it is copied to
    later.
    """
    path = trial.pickled_error_file
    error = None if path is None else cloudpickle.loads(Path(path).read_bytes())
    if isinstance(error, RayActorError):
        return "the process of the trial died; look for a lack of memory or a kill from outside"
    if error is None:
        return "it failed without a message"
    cause = unwrap(error).error
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


class Trainable(tune.Trainable):
    """A trial as Tune runs it, with a report per step. Tune reuses the process for the next trial, which saves imports.

    `config` holds `segment` (a `TrialSegment`), `metric` and `group` (the arguments of `WorkerGroup`).
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make the process end on a network partition. Whatever takes time and may fail is done in the first step."""
        self._config = config
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(ended_where_cut_off())
        self._group: WorkerGroup | None = None
        self._work: TrialSession | WorkerGroup | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Switch to another trial in the same process."""
        self._leave()
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Return the next report of the trial, as JSON under `report`, because Tune flattens mappings.

        Raises:
            Exception: The error of the trial, which Tune passes on.
        """
        if self._work is None:
            self._work = self._begin()
        report = self._work.advance()
        done = report["report"] >= self._config["segment"].reports
        return {"report": json.dumps(report), "done": done, **_result(report, self._config["metric"])}

    def cleanup(self) -> None:
        """End the workers."""
        self._leave()
        if self._group is not None:
            self._group.close()
        self._stack.close()

    def _begin(self) -> TrialSession | WorkerGroup:
        segment = self._config["segment"]
        if self._config["group"]["workers"] == 1:
            session = TrialSession(segment)
            session.open()
            return session
        if self._group is None:
            from tokenfree.train.sweep.workers import WorkerGroup  # takes a second; trials of one worker do not need it

            self._group = WorkerGroup(**self._config["group"], name=f"workers_{self.trial_id}")
        self._group.begin(segment)
        return self._group

    def _leave(self) -> None:
        if isinstance(self._work, TrialSession):
            self._work.close()
        self._work = None
        gc.collect()  # what reads shards is in reference cycles, and Python may leave many of them in memory
