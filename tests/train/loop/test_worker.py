"""`train`: what a loop does in which order, and how it ends."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop, TrainJob
from tokenfree.train.loop.worker import LoopFiles, train, work
from tokenfree.train.runs.checkpoints import RunProgress

MakeRecipe = Callable[..., PretrainRecipe]


class CallLog(LoopFiles):
    """Files that note how they are used. A worker is asked to stop in the step `stop_at`."""

    def __init__(self, loop: Loop, stop_at: int | None = None, due: tuple[int, ...] = ()) -> None:
        self.loop, self.stop_at, self.due = loop, stop_at, due
        self.calls: list[str] = []

    def load(self) -> RunProgress:
        self.calls.append("load")
        return RunProgress()

    def record(self, line: Any) -> None:
        self.calls.append(f"{'step' if 'loss' in line else 'validation'} {line['step']}")
        if line["step"] + 1 == self.stop_at:
            self.loop.stop.ask("SIGTERM")

    def is_due(self) -> bool:
        return self.loop.step in self.due

    def save(self, progress: RunProgress) -> None:
        self.calls.append(f"save {self.loop.step}")

    def wait(self) -> None:
        self.calls.append("wait")


def test_train_loads_steps_validates_and_saves(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(), corpus)
    files = CallLog(loop, due=(1,))
    ending = train(loop, files, until=3, validate_every=2)
    assert files.calls == ["load", "step 1", "save 1", "step 2", "validation 2", "step 3", "validation 3",
                           "save 3", "wait"]  # fmt: skip
    assert not ending.stops
    assert ending.progress.validation == loop.validate()


def test_work_reports_validations_and_checkpoints(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    reports = list[Mapping[str, Any]]()
    job = TrainJob(recipe=make_recipe(), data=corpus, run=str(tmp_path / "run"))
    work(job, threads=1, on_report=reports.append)
    checkpoints = [(report["step"], report["checkpoint"]) for report in reports]
    # Of the eight steps, each third is saved and each fourth is validated.
    assert checkpoints == [
        (3, "step_00000003"),
        (4, "step_00000003"),
        (6, "step_00000006"),
        (8, "step_00000008"),
    ]
    assert [report["step"] for report in reports if "validation_loss" in report] == [4, 8]
    assert all(report["loss"] > 0 for report in reports)


def test_train_returns_the_requests_to_stop(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(), corpus)
    files = CallLog(loop, stop_at=3)
    ending = train(loop, files, until=4, validate_every=4)
    assert files.calls == ["load", "step 1", "step 2", "step 3", "save 3", "wait"]
    assert [stop.reason for stop in ending.stops] == ["SIGTERM"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_train_ignores_a_request_in_the_last_step(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(), corpus)
    ending = train(loop, CallLog(loop, stop_at=2), until=2, validate_every=2)
    assert not ending.stops
    assert ending.progress.validation is not None


def test_train_ends_after_its_seconds(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(), corpus)
    files = CallLog(loop)
    progress = train(loop, files, until=4, seconds=1e-9, validate_every=4).progress
    assert files.calls == ["load", "step 1", "validation 1", "save 1", "wait"]
    files.calls.clear()
    train(loop, files, progress, until=4, validate_every=4)
    assert files.calls == ["step 2", "step 3", "step 4", "validation 4", "save 4", "wait"]
