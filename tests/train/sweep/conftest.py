"""Sweeps of a small task, and sweeps whose trials run one after another in this process, without Ray."""

import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.train.finetune.conftest import MakeTask, task_recipe, write_files
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.sweep import run
from tokenfree.train.sweep.history import History, TrialState
from tokenfree.train.sweep.recipe import SweepRecipe, with_task_defaults
from tokenfree.train.sweep.search import Progress, Proposer, SweepJournal
from tokenfree.train.sweep.trial import TrialSegment, TrialSession

MakeTaskSweep = Callable[..., SweepRecipe]


def trial_state(
    name: str,
    values: Mapping[str, Any],
    state: str,
    reports: Sequence[Mapping[str, Any]] = (),
    error: str = "",
    setting: int = 0,
    seed: int = 0,
) -> TrialState:
    """A trial in a state, with reports that have their numbers."""
    numbered = tuple({"report": number, **report} for number, report in enumerate(reports, 1))
    return TrialState(
        name,
        setting,
        seed,
        dict(values),
        last_report=len(numbered) + (state != "finished"),
        reports=numbered,
        verdict="stop" if state == "stopped" else "go",
        running=state == "running",
        failures=2 * (state == "failed"),
        error=error,
    )


class LookedUp(dict[str, Any]):
    """Trials that can be looked up by their names, but not read one after another."""

    def _refuse(self) -> Any:
        raise AssertionError("an event reads all trials")

    __iter__ = keys = values = items = copy = _refuse


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    return task_recipe


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def make_task_sweep(make_task: MakeTask) -> MakeTaskSweep:
    """Makes a sweep of two learning rates with two seeds over a task, given by its name or mapping."""

    def make(task: Any = "classification", train: Any = None, **over: Any) -> SweepRecipe:
        mapping = {
            "base": to_mapping(make_task(task, **(train or {}))),
            "space": {"train.learning_rate": {"grid": [0.001, 0.02]}},
            "seeds": 2,
            **over,
        }
        return build(SweepRecipe, with_task_defaults(mapping), source="test")

    return make


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials run in this process; the names of those that reported, in order."""
    reported: list[str] = []

    def run_here(proposer: Proposer, planned: History, folder: Path, progress: Progress | None) -> History:
        journal = SweepJournal(proposer, planned, folder, progress or (lambda event, history: None))
        journal.start()
        try:
            while (trial := journal.next_trial()) is not None:
                sweep = proposer.sweep
                segment = TrialSegment(
                    name=trial.name,
                    recipe=to_mapping(sweep.recipe(trial.values, trial.seed)),
                    subject=dataclasses.replace(proposer.subject),
                    folder=str(journal.folder(trial.name)),
                    budget=sweep.budget,
                    reports=sweep.reports,
                    known=trial.report_number,
                    threads=1,
                )
                session = TrialSession(pickle.loads(pickle.dumps(segment)))  # as it comes through Ray
                session.open()
                while journal.history.trials[trial.name].running:
                    journal.report(trial.name, session.advance())
                    reported.append(trial.name)
                session.close()
        finally:
            journal.close()
        return journal.history

    monkeypatch.setattr(run, "_run", run_here)
    return reported
