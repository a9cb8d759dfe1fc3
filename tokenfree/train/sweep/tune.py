"""Run the trials of a sweep under Ray Tune, in the child process that is connected to Ray (train/ray/child.py).

Each command makes a new `Tuner`, whose scheduler gets all reports of the journal. `Tuner.restore` accepts no
scheduler, so ASHA would start with empty rungs, and Tune has lost the seconds before a SIGKILL.
"""

import contextlib
import dataclasses
import gc
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tokenfree.core import own_code
from tokenfree.core.child import Link
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.ray.cluster import (
    TUNE_LOGGERS,
    RayLost,
    Session,
    exit_if_cut_off,
    ray_environment,
    ray_session,
    run_watched,
)
from tokenfree.train.ray.worker_errors import unwrap
from tokenfree.train.sweep.history import RAY, History, TrialState
from tokenfree.train.sweep.recipe import Asha, RayScheduler, SweepRecipe, Values
from tokenfree.train.sweep.search import Proposer, SweepJournal
from tokenfree.train.sweep.trial import TrialSegment, TrialSession


@dataclasses.dataclass(frozen=True)
class Placement:
    """Resources of a trial, by Ray's names, and the number of trials that run at once."""

    needs: Mapping[str, float]
    concurrent: int


def cluster_nodes() -> list[Mapping[str, float]]:
    """Return the resources of each machine of the cluster that Ray is connected to, by Ray's names."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def find_placement(
    sweep: SweepRecipe, settings: Sequence[Values], nodes: Sequence[Mapping[str, float]]
) -> Placement:
    """Return how many trials of these settings fit on `nodes` at once.

    Raises UserError if not even one fits.
    """
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.get("GPU") for node in nodes) else 0.0
    needs = {"CPU": float(max(sweep.recipe(values).train.threads or 1 for values in settings))}
    needs |= {"GPU": gpus} if gpus else {}
    fitting = sum(
        min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items()) for node in nodes
    )
    if fitting == 0:
        amounts = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
        raise UserError(
            f"a trial needs {amounts}: no machine of the cluster has as much. Lower train.threads or gpus_per_worker, "
            "or add machines."
        )
    return Placement(needs, min(fitting, sweep.concurrent or fitting))


_NUMBER, _QUALITY = "report_number", "quality"  # fields of a result that schedulers read


def run_trials(link: Link, plans: bytes, folder: str) -> str | None:
    """Train the trials of a sweep, and send the pickled session and every event of the journal over `link`.

    `plans` is the pickled return value of `prepare`. Returns None if all trials have ended, otherwise a
    description of the part of Ray that was lost, which may be empty. Raises UserError if the search space and
    the cluster do not fit together, and JobError if Ray could not be started or reached, or memory ran out.
    """
    # This process ends with the command.
    link.listen(lambda message: None)
    proposer, planned = pickle.loads(plans)
    # The command has checked all code that the recipes name.
    with own_code.trusting(True, folder), ray_environment(mute=TUNE_LOGGERS):
        try:
            with ray_session() as session:
                link.send(pickle.dumps(session))
                _train(proposer, planned, Path(folder), link, session)
        except RayLost as error:
            return str(error)
        except RayError:  # an actor that does not answer
            return ""
    return None


def _train(proposer: Proposer, planned: History, folder: Path, link: Link, session: Session) -> None:
    placement = find_placement(proposer.sweep, planned.proposed, cluster_nodes())
    journal = SweepJournal(proposer, planned, folder, lambda event, history: link.send(event))
    journal.start()
    try:
        with ray_environment({"TUNE_MAX_PENDING_TRIALS_PG": str(placement.concurrent)}):
            run_watched(_tuner(_Trials(journal, placement), folder / RAY).fit, session)
    except RuntimeError as error:  # Tune gives up if Ray kills a process to free memory
        if isinstance(error.__cause__, OutOfMemoryError):
            raise JobError(
                "memory ran out, so Ray ended a trial. Give a lower --concurrent or free memory, and run the same "
                "command again: it resumes the sweep."
            ) from error
        raise
    finally:
        journal.close()


def _tuner(trials: "_Trials", storage: Path) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(Trainable, dict(trials.placement.needs)),
        tune_config=tune.TuneConfig(
            search_alg=trials,
            scheduler=make_scheduler(trials.journal.sweep, trials.journal.history),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(storage),
            verbose=0,
            callbacks=[_Record(trials)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials save by themselves
            # A failed trial is suggested once more instead.
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )


class _Trials(Searcher):
    """A searcher that suggests to Tune first the trials that have not ended, then new ones, as many as fit."""

    def __init__(self, journal: SweepJournal, placement: Placement) -> None:
        super().__init__()
        self.journal, self.placement = journal, placement
        # Started trials of Tune, by the sweep's names.
        self.started: dict[str, Trial] = {}

    def __reduce__(self) -> Any:
        # Tune pickles the searcher to restore it, which never happens here.
        return Searcher, ()

    def suggest(self, trial_id: str) -> Any:
        unfinished = self.journal.history.unfinished.values()
        running = sum(trial.running and not self._is_paused(trial.name) for trial in unfinished)
        trial = self.journal.next_trial() if running < self.placement.concurrent else None
        if trial is None:
            return Searcher.FINISHED if self.journal.history.all_ended else None
        return {"segment": self._segment(trial), "metric": self.journal.sweep.quality.metric}

    def _is_paused(self, name: str) -> bool:
        return name in self.started and self.started[name].status == Trial.PAUSED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing, because the callback has recorded the end."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because a sweep resumes from its journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, because a sweep resumes from its journal."""

    def _segment(self, trial: TrialState) -> TrialSegment:
        sweep, needs = self.journal.sweep, self.placement.needs
        return TrialSegment(
            name=trial.name,
            recipe=to_mapping(sweep.recipe(trial.values, trial.seed)),
            subject=dataclasses.replace(self.journal.subject),  # a copy without the data read so far
            folder=str(self.journal.folder(trial.name).resolve()),
            budget=sweep.budget,
            reports=sweep.reports,
            known=trial.report_number,
            threads=max(1, int(needs["CPU"])),
            gpu="GPU" in needs,
        )


class _Record(tune.Callback):
    """A callback that records Tune's reports before Tune acts on them."""

    def __init__(self, trials: _Trials) -> None:
        self._trials = trials

    def on_trial_start(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        self._trials.started[_name(trial)] = trial

    def on_trial_complete(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        self._trials.journal.stop(_name(trial))

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self._trials.journal.report(_name(trial), json.loads(result["report"]), stop=result["done"])

    def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        self._trials.journal.failed(_name(trial), _own_error(trial))


def _name(trial: Trial) -> str:
    """Return the sweep's name of a trial of Tune, whose own ids change after a kill."""
    return trial.config["segment"].name


def make_scheduler(sweep: SweepRecipe, history: History) -> TrialScheduler:
    """Return the scheduler of Tune that the sweep names. ASHA has received the reports in `history`."""
    asha = sweep.scheduler
    common: dict[str, Any] = {"time_attr": _NUMBER, "metric": _QUALITY, "mode": sweep.quality.mode}
    if isinstance(asha, RayScheduler):
        return asha.build(**common, max_t=sweep.reports, grace_period=1, stop_last_trials=False)
    if not isinstance(asha, Asha):
        return FIFOScheduler()
    scheduler = _NamedAsha(
        **common,
        max_t=max(sweep.reports, asha.grace),
        grace_period=asha.grace,
        reduction_factor=asha.reduction,
        stop_last_trials=False,
    )
    for trial in history.trials.values():
        for report in trial.reports:
            scheduler.recall(trial.name, _result(report, sweep.quality.metric))
    return scheduler


def _named_trial(name: str) -> Any:
    # The only field that ASHA reads.
    return SimpleNamespace(trial_id=name)


class _NamedAsha(ASHAScheduler):
    """Tune's ASHA, which identifies trials by the sweep's names here, so that reports from before a kill count.

    Its rungs depend on the set of reports, not on their order.
    """

    def recall(self, name: str, result: dict[str, Any]) -> None:
        """Record a report of an earlier command, without a decision."""
        # ASHA does not use it.
        controller: Any = None
        super().on_trial_add(controller, _named_trial(name))
        super().on_trial_complete(controller, _named_trial(name), result)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_add(tune_controller, _named_trial(_name(trial)))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        return super().on_trial_result(tune_controller, _named_trial(_name(trial)), result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, _named_trial(_name(trial)), result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        super().on_trial_remove(tune_controller, _named_trial(_name(trial)))


def _result(report: Any, metric: str) -> dict[str, Any]:
    return {_NUMBER: report["report"], _QUALITY: report[metric]}


def _own_error(trial: Trial) -> str:
    """Return the trial's own error in one line, from the file that Tune has just written and copies later."""
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
    """A trial as Tune runs it. `config` holds `segment` (a `TrialSegment`) and `metric`.

    Processes are reused.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make the process end on a network partition.

        Whatever takes time and may fail is done in the first step.
        """
        self._config = config
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(exit_if_cut_off())
        self._session: TrialSession | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._leave()
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Return the next report of the trial, as JSON under `report`, because Tune flattens mappings."""
        if self._session is None:
            self._session = TrialSession(self._config["segment"])
            self._session.open()
        report = self._session.advance()
        self._known = report["report"]
        done = self._known >= self._config["segment"].reports
        return {"report": json.dumps(report), "done": done, **_result(report, self._config["metric"])}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Leave the trial, which a scheduler pauses. Its newest checkpoint is in its own folder."""
        Path(checkpoint_dir, "known").write_text(str(self._known))
        self._leave()

    def load_checkpoint(self, checkpoint: Any) -> None:
        known = int(Path(checkpoint, "known").read_text())
        segment = dataclasses.replace(self._config["segment"], known=known)
        self._config = {**self._config, "segment": segment}

    def cleanup(self) -> None:
        self._leave()
        self._stack.close()

    def _leave(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None
        # What reads shards is in reference cycles, and Python may leave many of them in memory.
        gc.collect()
