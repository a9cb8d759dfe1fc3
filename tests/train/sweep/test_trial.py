"""One trial in one process: its budget, and resuming from its own checkpoints."""

import dataclasses
import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.sweep import trial as trial_session
from tokenfree.train.sweep.recipe import Budget
from tokenfree.train.sweep.subjects import PretrainingSubject
from tokenfree.train.sweep.trial import TrialSegment, TrialSession, mean_of_steps
from tokenfree.train.sweep.tune import Trainable

MakeRecipe = Callable[..., PretrainRecipe]
EXACT = ("report", "step", "loss", "validation_loss", "characters", "flops", "parameters", "seed")


def make_segment(corpus: str, recipe: PretrainRecipe, folder: Path, **over: Any) -> TrialSegment:
    segment = TrialSegment(
        name="trial_000",
        recipe=to_mapping(recipe),
        subject=PretrainingSubject(corpus),
        folder=str(folder),
        budget=Budget(steps=6),
        reports=3,
        known=0,
        threads=1,
    )
    budget = Budget(**over.pop("budget", {"steps": 6}))
    return dataclasses.replace(segment, budget=budget, **over)


def opened(segment: TrialSegment) -> TrialSession:
    session = TrialSession(segment)
    session.open()
    return session


def reports(segment: TrialSegment) -> list[dict[str, Any]]:
    """All that are still to come."""
    session = opened(segment)
    found = []
    while not found or found[-1]["report"] < segment.reports:
        found.append(dict(session.advance()))
    session.close()
    return found


def exact(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in EXACT}


def test_nothing_happens_before_it_is_opened(tmp_path: Path, make_recipe: MakeRecipe) -> None:
    TrialSession(make_segment("no such data", make_recipe(), tmp_path / "trial"))
    assert not (tmp_path / "trial").exists()


def test_a_folder_is_held_by_one_at_a_time(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_session, "_PATIENCE", 0.1)
    first = opened(make_segment(corpus, make_recipe(), tmp_path))
    with pytest.raises(JobError, match="another process still trains"):
        opened(make_segment(corpus, make_recipe(), tmp_path))
    first.close()
    failing = TrialSession(make_segment(str(tmp_path / "nowhere"), make_recipe(), tmp_path))
    with pytest.raises(UserError):
        failing.open()  # lets go of the folder again
    opened(make_segment(corpus, make_recipe(), tmp_path)).close()


def test_reports_come_evenly_and_count(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    found = reports(make_segment(corpus, make_recipe(), tmp_path, budget={"steps": 7}))
    assert [report["step"] for report in found] == [3, 5, 7]
    assert found[1]["flops"] == pytest.approx(found[0]["flops"] * 5 / 3)
    assert found[2]["characters"] > found[1]["characters"] > found[0]["characters"] > 0
    assert all(report["characters_per_second"] > 0 for report in found)


def test_a_report_without_a_step_repeats_the_loss(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    found = reports(make_segment(corpus, make_recipe(), tmp_path, budget={"steps": 2}, reports=5))
    assert [report["step"] for report in found] == [1, 1, 2]
    assert found[0]["loss"] == found[1]["loss"] > found[2]["loss"]


def test_a_budget_of_seconds(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    found = reports(make_segment(corpus, make_recipe(), tmp_path, budget={"seconds": 0.6}))
    assert found[-1]["report"] == 3
    # A step more than the budget at most, or all steps that it is worth.
    assert 0.1 < found[-1]["train_seconds"] < 2


@pytest.mark.parametrize("key", ["flops", "characters"])
def test_a_budget_of_work_allows_fewer_larger_steps(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, key: str
) -> None:
    amounts = dict[int, Any]()
    for batch in (4, 8):
        recipe = make_recipe(global_batch=batch)
        unit = reports(make_segment(corpus, recipe, tmp_path / f"unit_{batch}", budget={"steps": 8}))[-1][key]
        segment = make_segment(corpus, recipe, tmp_path / f"batch_{batch}", budget={key: unit * 1.5})
        amounts[batch] = reports(segment)
        assert amounts[batch][-1][key] == pytest.approx(unit * 1.5, rel=0.2)
        assert [report["step"] for report in amounts[batch]] == [4, 8, 12]
        # The same steps again: they depend on no clock.
        again = dataclasses.replace(segment, folder=str(tmp_path / f"again_{batch}"))
        assert [exact(report) for report in reports(again)] == [exact(report) for report in amounts[batch]]


def test_timing_a_step_leaves_the_trial_at_its_beginning(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the loop that was timed stays where it began, whatever the learning rate of the trial."""
    recipe = make_recipe(learning_rate=1.0, warmup=0.0)
    timed: list[Loop] = []

    def one_second(loop: Loop, name: str) -> float:
        timed.append(loop)
        assert mean_of_steps(loop, name) > 0
        return 1.0

    monkeypatch.setattr(trial_session, "mean_of_steps", one_second)
    session = opened(make_segment(corpus, recipe, tmp_path / "seconds", budget={"seconds": 6}, reports=6))
    fresh = Loop(recipe, corpus)
    assert timed[0].step > session.loop.step == 0
    for loop in (timed[0], session.loop):
        for after, before in zip(loop.model.parameters(), fresh.model.parameters(), strict=True):
            torch.testing.assert_close(after, before, rtol=0, atol=1e-9)
    assert session.loop.recipe.train.steps == 6
    assert session.loop.recipe.train.learning_rate == 1.0
    session.close()


@pytest.mark.parametrize(("compiles", "expected"), [(None, False), (True, True)])
def test_a_trial_is_compiled_only_on_request(
    compiles: bool | None, expected: bool, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    segment = make_segment(corpus, make_recipe(compile=compiles), tmp_path, budget={"steps": 10_000})
    session = opened(segment)
    assert session.loop.recipe.train.compile is expected
    session.close()


def test_a_trial_goes_on_bit_for_bit_from_its_newest_checkpoint(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    whole = reports(make_segment(corpus, make_recipe(), tmp_path / "whole"))
    session = opened(make_segment(corpus, make_recipe(), tmp_path / "killed"))
    session.advance()
    session.close()
    rest = reports(make_segment(corpus, make_recipe(), tmp_path / "killed", known=1))
    assert [exact(report) for report in rest] == [exact(report) for report in whole[1:]]


def test_a_report_that_nobody_heard_of_is_made_again_without_training(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    session = opened(make_segment(corpus, make_recipe(), tmp_path))
    session.advance()
    lost = session.advance()
    session.close()
    again = opened(make_segment(corpus, make_recipe(), tmp_path, known=1))
    assert again.advance() == lost
    assert again.advance()["report"] == 3
    again.close()


def test_a_damaged_checkpoint_is_passed_over(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    segment = make_segment(corpus, make_recipe(), tmp_path)
    whole = reports(dataclasses.replace(segment, folder=str(tmp_path / "whole")))
    session = opened(segment)
    session.advance()
    session.advance()
    session.close()
    (tmp_path / "checkpoints" / "step_00000004" / "model.safetensors").write_bytes(b"damaged")
    assert [exact(report) for report in reports(dataclasses.replace(segment, known=2))] == [
        exact(r) for r in whole[1:]
    ]


def test_a_process_forgets_a_trial_before_the_next_one(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    """Else a sweep of many trials runs out of memory: what reads shards is part of reference cycles."""
    earlier = readers()
    process = Trainable.__new__(Trainable)
    process._session = opened(make_segment(corpus, make_recipe(), tmp_path / "trial"))
    gc.disable()
    try:
        process._session.advance()
        opened_readers = [weakref.ref(reader) for reader in readers() if reader not in earlier]
        process._leave()
    finally:
        gc.enable()
    assert opened_readers
    assert not any(reader() for reader in opened_readers)


def readers() -> list[ShardReader]:
    # Isinstance would follow weak proxies.
    return [found for found in gc.get_objects() if type(found) is ShardReader]


def test_a_paused_trial_continues_bit_for_bit_in_another_process(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    whole = reports(make_segment(corpus, make_recipe(), tmp_path / "whole"))
    segment = make_segment(corpus, make_recipe(), tmp_path / "paused")
    config = {"segment": segment, "metric": "validation_loss"}
    first, second = (Trainable.__new__(Trainable) for _ in range(2))
    for process in (first, second):
        process._config, process._session = config, None
    results = [first.step()]
    first.save_checkpoint(str(tmp_path))
    # The first process has let go of the trial.
    second.load_checkpoint(str(tmp_path))
    results += [second.step(), second.step()]
    second._leave()
    assert [result["done"] for result in results] == [False, False, True]
    assert [exact(json.loads(result["report"])) for result in results] == [exact(report) for report in whole]
