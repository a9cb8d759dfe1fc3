"""Runs made longer: finished or not, killed on the way, twice, and asked for nonsense."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_json_lines
from tokenfree.core.errors import UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.optimizers.base import learning_rate
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.hashes import verify_folder
from tokenfree.train.runs.run import Run
from tokenfree.workflows.report.page import write_report

MakeRecipe = Callable[..., PretrainRecipe]
History = Callable[[Path], list[dict[str, Any]]]


def events(run: Path) -> list[str]:
    return [line["event"] for line in read_json_lines(run / "events.jsonl")]


def rates(lines: list[dict[str, Any]]) -> list[float]:
    return [line["learning_rate"] for line in lines if "loss" in line]


def planned(steps: int) -> list[float]:
    return [learning_rate(step, steps=steps, peak=0.01, warmup=0.025) for step in range(steps)]


def test_a_finished_run_goes_on_at_the_rates_of_the_longer_one(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    run = tmp_path / "run"
    pretrain(make_recipe(), corpus, str(run))
    before = history(run)
    lines: list[Any] = []
    result = pretrain(make_recipe(), corpus, str(run), extend_to=12, progress=lines.append)
    assert (result.steps, result.already_complete, result.loss) == (12, False, history(run)[-2]["loss"])
    assert history(run)[: len(before)] == before
    assert rates(history(run)) == planned(8) + planned(12)[8:]
    assert [line["step"] for line in history(run) if "validation_loss" in line] == [4, 8, 12]
    assert checkpoints.steps(run / "checkpoints")[-1] == 12
    assert read_config(run).recipe == make_recipe(steps=12)
    assert events(run) == ["start", "complete", "extend", "resume", "complete"]
    extend = lines[0]
    assert (extend["event"], extend["step"], extend["steps_before"], extend["steps"]) == ("extend", 8, 8, 12)
    assert extend["message"] == (
        "made longer, from 8 to 12 steps; step 9 and those after it have the learning rate of a run of 12 steps"
    )
    page = write_report([str(run)], str(tmp_path / "report.html")).read_text()
    assert "made longer, from 8 to 12 steps" in page
    assert "of 12 steps" in page

    again = pretrain(make_recipe(), corpus, str(run), extend_to=12)  # the same command
    assert (again.already_complete, again.loss) == (True, result.loss)
    assert pretrain(make_recipe(), corpus, str(run), extend_to=14).steps == 14  # and once more
    assert rates(history(run)) == planned(8) + planned(12)[8:] + planned(14)[12:]
    assert pretrain(make_recipe(steps=14), corpus, str(run)).already_complete
    assert verify_folder(str(run)).unhashed == ()


def test_killed_on_the_way(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History, kill_at: Any
) -> None:
    recipe = make_recipe(steps=20, checkpoint_every_steps=25, validate_every_steps=10)
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "killed"
    pretrain(recipe, corpus, str(undisturbed))
    shutil.copytree(undisturbed, run)
    pretrain(recipe, corpus, str(undisturbed), extend_to=70)
    # After step 30: it resumes from that of step 25.
    assert kill_at(22 + 12, recipe, corpus, run, extend_to=70) < 70
    assert pretrain(recipe, corpus, str(run), extend_to=70).restarts == 2
    assert history(run) == history(undisturbed)
    assert events(run) == ["start", "complete", "extend", "resume", "resume", "complete"]


def test_an_unfinished_run(corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History) -> None:
    """As if killed after step 7: it resumes from the checkpoint of step 6."""
    run = tmp_path / "run"
    pretrain(make_recipe(), corpus, str(run))
    (run / "result.json").unlink()
    (run / "checkpoints" / checkpoints.checkpoint_name(8) / "COMMIT").unlink()
    result = pretrain(make_recipe(), corpus, str(run), extend_to=10)
    assert result.steps == 10
    assert rates(history(run)) == planned(8)[:6] + planned(10)[6:]


def test_killed_while_it_is_made_longer(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def kill(*arguments: Any) -> None:
        raise Killed

    one, two = tmp_path / "one", tmp_path / "two"
    for run in (one, two):
        pretrain(make_recipe(), corpus, str(run))
    before = history(one)
    with monkeypatch.context() as patch:
        patch.setattr("tokenfree.train.runs.run.write_atomically", kill)
        with pytest.raises(Killed):
            pretrain(make_recipe(), corpus, str(one), extend_to=12)
    assert read_config(one).recipe.train.steps == 8
    assert Run(one).result() is None  # not one of 8 steps beside a config of 12
    assert not verify_folder(str(one)).complete
    pretrain(make_recipe(), corpus, str(one))  # the shorter run can still be had
    assert history(one) == before
    pretrain(make_recipe(), corpus, str(one), extend_to=12)
    pretrain(make_recipe(), corpus, str(two), extend_to=12)
    assert history(one) == history(two)


def test_a_run_that_warms_up_to_its_end(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(steps=2, warmup=1.0), corpus, str(tmp_path / "run"))
    lines: list[Any] = []
    pretrain(
        make_recipe(steps=2, warmup=1.0), corpus, str(tmp_path / "run"), extend_to=4, progress=lines.append
    )
    assert lines[0]["message"].endswith("of a run of 4 steps")


def test_with_given_weights(first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    pretrain(make_recipe(), corpus, run, init_from=first_run)
    record = read_config(run).init_from
    with pytest.raises(UserError, match="not with no --init-from"):
        pretrain(make_recipe(), corpus, run, extend_to=12)
    assert pretrain(make_recipe(), corpus, run, init_from=first_run, extend_to=12).steps == 12
    assert read_config(run).init_from == record is not None


def test_what_is_refused(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(
        UserError, match=rf"--extend-to 12: {run} is not a run yet; begin it with --train.steps 12"
    ):
        pretrain(make_recipe(), corpus, str(run), extend_to=12)
    assert not run.exists()
    pretrain(make_recipe(), corpus, str(run))
    for fewer in (7, 0, -1):
        with pytest.raises(UserError, match=rf"--extend-to {fewer}: {run} is a run of 8 steps; give more"):
            pretrain(make_recipe(), corpus, str(run), extend_to=fewer)
    with pytest.raises(UserError, match=r"train\.seed is 1, was 0"):
        pretrain(make_recipe(seed=1), corpus, str(run), extend_to=12)
    assert read_config(run).recipe.train.steps == 8
    assert pretrain(make_recipe(), corpus, str(run), extend_to=8).already_complete
    with pytest.raises(UserError, match=r"train.steps is 12, was 8; .*--extend-to makes a run longer"):
        pretrain(make_recipe(steps=12), corpus, str(run))
