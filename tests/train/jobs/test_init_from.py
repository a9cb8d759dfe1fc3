"""Runs that begin with given weights: whole, killed, run again with other options, damaged."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import read_json_lines
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run, import_folder
from tokenfree.train.jobs import init_from as first_checkpoint
from tokenfree.train.jobs.init_from import loop_from_weights, read_weights
from tokenfree.train.loop.pretraining import Loop, TrainJob
from tokenfree.train.loop.worker import work
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import InitFrom, read_config

MakeRecipe = Callable[..., PretrainRecipe]
History = Callable[[Path], list[dict[str, Any]]]
Lines = list[Any]


def events(run: Path, but: str = "init_from") -> list[str]:
    return [line["event"] for line in read_json_lines(run / "events.jsonl") if line["event"] != but]


def test_a_run_begins_with_the_weights_of_another(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    lines: Lines = []
    recipe = make_recipe(seed=3, steps=4, keep_checkpoints=9)
    pretrain(recipe, corpus, str(tmp_path / "run"), init_from=first_run, progress=lines.append)
    given = read_weights(first_run)
    first = checkpoints.read(tmp_path / "run" / "checkpoints" / checkpoints.checkpoint_name(0))
    assert first.state.step == 0
    assert first.tensors("optimizer") == {}
    tensors = first.tensors("model")
    assert all(torch.equal(tensors[name], given.tensors[name]) for name in given.tensors)

    by_hand = Loop(recipe, corpus)
    by_hand.model.load_state_dict(dict(given.tensors))
    losses = list(by_hand.steps(4))
    trained = [line for line in history(tmp_path / "run") if "loss" in line]
    assert [line["loss"] for line in trained] == [line["loss"] for line in losses]
    assert read_config(tmp_path / "run").init_from == InitFrom(first_run, given.sha256)
    assert (lines[0]["event"], lines[0]["step"], lines[0]["sha256"]) == ("init_from", 0, given.sha256)
    assert lines[0]["message"].startswith(
        f"weights of {first_run} (step 8 of a run): 69 of 69 tensors loaded"
    )
    assert events(tmp_path / "run", but="") == ["init_from", "start", "complete"]


def test_the_same_command_again_reads_nothing(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    source, run = shutil.copytree(first_run, tmp_path / "source"), tmp_path / "run"
    recipe = make_recipe(checkpoint_every_steps=100)
    first = pretrain(recipe, corpus, str(run), init_from=str(source))
    before = history(run)
    assert pretrain(recipe, corpus, str(run), init_from=str(source)).already_complete
    shutil.rmtree(source)
    assert pretrain(recipe, corpus, str(run), init_from=str(source)).already_complete
    # As if killed before its first own checkpoint.
    for name in ("result.json", f"checkpoints/{checkpoints.checkpoint_name(8)}/COMMIT"):
        (run / name).unlink()
    again = pretrain(recipe, corpus, str(run), init_from=str(source))
    assert again.loss == first.loss
    assert history(run) == before


def test_killed_before_its_next_checkpoint(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History, kill_at: Any
) -> None:
    recipe = make_recipe(seed=1, steps=60, checkpoint_every_steps=50, validate_every_steps=30)
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "killed"
    pretrain(recipe, corpus, str(undisturbed), init_from=first_run)
    assert kill_at(10, recipe, corpus, run, init_from=first_run) < 50
    result = pretrain(recipe, corpus, str(run), init_from=first_run)
    assert history(run) == history(undisturbed)
    assert (events(run, but=""), result.restarts) == (["init_from", "start", "start", "complete"], 1)


def test_killed_before_the_weights_were_written(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    class Killed(Exception):
        pass

    def kill(*arguments: Any) -> None:
        raise Killed

    source, run = Path(shutil.copytree(first_run, tmp_path / "source")), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(first_checkpoint.checkpoints, "write", kill)
        with pytest.raises(Killed):
            pretrain(make_recipe(), corpus, str(run), init_from=str(source))
    assert (run / "config.yaml").exists()
    newest = source / "checkpoints" / checkpoints.checkpoint_name(8) / "COMMIT"
    mark = newest.read_text()
    newest.unlink()
    with pytest.raises(JobError, match="step_00000008 is damaged"):
        pretrain(make_recipe(), corpus, str(run), init_from=str(source))
    result = (source / "result.json").read_text()
    (source / "result.json").unlink()  # of a run that is still trained: the weights are now those of step 6
    with pytest.raises(UserError, match=f"the weights are not those that {run} was begun with"):
        pretrain(make_recipe(), corpus, str(run), init_from=str(source))
    newest.write_text(mark)
    (source / "result.json").write_text(result)
    pretrain(make_recipe(), corpus, str(run), init_from=str(source))
    pretrain(make_recipe(), corpus, str(tmp_path / "undisturbed"), init_from=first_run)
    assert history(run) == history(tmp_path / "undisturbed")


def test_without_a_sound_checkpoint_the_weights_are_loaded_again(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    run = tmp_path / "run"
    pretrain(make_recipe(), corpus, str(run), init_from=first_run)
    before = history(run)
    (run / "result.json").unlink()
    for step in (3, 6, 8):
        (run / "checkpoints" / checkpoints.checkpoint_name(step) / "model.safetensors").write_bytes(b"")
    job = TrainJob(recipe=make_recipe(), data=corpus, run=str(run), has_first_checkpoint=True)
    with pytest.raises(JobError, match="began with given weights and has no sound checkpoint left"):
        work(job)
    pretrain(make_recipe(), corpus, str(run), init_from=first_run)
    assert history(run) == before
    damaged = ["damaged_checkpoint"] * 3
    assert events(run) == ["start", "complete", *damaged, "start", "complete"]


@pytest.mark.slow
def test_going_back_to_the_beginning_is_to_the_given_weights(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    """A threshold that ordinary losses cross."""
    options: dict[str, Any] = {
        "spike_window": 2,
        "spike_deviations": 2.0,
        "max_roll_backs": 50,
        "learning_rate": 1e-5,
    }
    recipe = make_recipe(steps=6, checkpoint_every_steps=100, **options)
    roll_back = make_recipe(steps=6, checkpoint_every_steps=100, on_spike="roll_back", **options)
    pretrain(recipe, corpus, str(tmp_path / "on"), init_from=first_run)
    pretrain(roll_back, corpus, str(tmp_path / "back"), init_from=first_run)
    assert "roll_back" in events(tmp_path / "back")
    left_out = read_json_lines(tmp_path / "back" / "events.jsonl")[-2]["left_out"]
    loop, _ = loop_from_weights(recipe, lambda each: Loop(each, corpus), read_weights(first_run))
    loop.leave_out(left_out)
    lines = list(loop.steps(6))
    trained = [line["loss"] for line in history(tmp_path / "back") if "loss" in line]
    assert trained == [line["loss"] for line in lines]


def test_other_weights_for_the_same_run(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    other, moved, plain, run = (str(tmp_path / name) for name in ("other", "moved", "plain", "run"))
    pretrain(make_recipe(seed=5, steps=1), corpus, other)
    pretrain(make_recipe(), corpus, plain)
    pretrain(make_recipe(), corpus, run, init_from=first_run)
    with pytest.raises(
        UserError, match=f"it began with --init-from {first_run}, not with --init-from {other};"
    ):
        pretrain(make_recipe(), corpus, run, init_from=other)
    with pytest.raises(UserError, match=f"it began with --init-from {first_run}, not with no --init-from;"):
        pretrain(make_recipe(), corpus, run)
    with pytest.raises(UserError, match=f"it began with no --init-from, not with --init-from {first_run};"):
        pretrain(make_recipe(), corpus, plain, init_from=first_run)
    with pytest.raises(UserError, match="is the run itself; give another --output"):
        pretrain(make_recipe(), corpus, run, init_from=os.path.relpath(run))
    shutil.copytree(first_run, moved)
    assert pretrain(make_recipe(), corpus, run, init_from=moved).already_complete  # the same, elsewhere


def test_nothing_is_written_where_nothing_fits(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"model\.width 32, there 16"):
        pretrain(make_recipe(model={"width": 32}), corpus, str(tmp_path / "run"), init_from=first_run)
    with pytest.raises(UserError, match="holds neither a run"):
        pretrain(make_recipe(), corpus, str(tmp_path / "run"), init_from=str(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []


def test_an_imported_run_is_trained_on(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    export_run(first_run, tmp_path / "folder")
    import_folder(tmp_path / "folder", tmp_path / "imported")
    imported = str(tmp_path / "imported")
    with pytest.raises(
        UserError, match=f"to train on from its weights, give --init-from {imported} and another"
    ):
        pretrain(make_recipe(), corpus, imported)
    from_run = pretrain(make_recipe(), corpus, str(tmp_path / "one"), init_from=imported)
    from_folder = pretrain(make_recipe(), corpus, str(tmp_path / "two"), init_from=str(tmp_path / "folder"))
    assert from_run.loss == from_folder.loss
    (line,) = [
        line for line in read_json_lines(tmp_path / "one" / "events.jsonl") if line["event"] == "init_from"
    ]
    assert line["message"].splitlines()[1:] == ["  new: head: not in the given weights"]


def test_what_is_new_is_as_fresh_as_in_any_run_and_the_average_begins_so(
    first_run: str, corpus: str, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(model={"trunk": {"layers": 2}}, seed=7, ema_decay=0.9)
    loop, found = loop_from_weights(recipe, lambda each: Loop(each, corpus), read_weights(first_run))
    fresh = Loop(recipe, corpus).model.state_dict()
    state = loop.model.state_dict()
    assert len(found.new) == 16
    assert all(torch.equal(state[name], fresh[name]) for name in found.new)
    assert not torch.equal(state["encoder.pooler.weight"], fresh["encoder.pooler.weight"])
    parts, _ = loop.snapshot()
    assert all(torch.equal(parts["average"][name], parts["model"][name]) for name in parts["average"])


def test_projections_that_a_pattern_has_besides_begin_as_copies(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    attention = {"name": "sliding_global", "separate_global_projections": True}
    recipe = make_recipe(model={"trunk": {"attention": attention}}, steps=2)
    loop, found = loop_from_weights(recipe, lambda each: Loop(each, corpus), read_weights(first_run))
    state = loop.model.state_dict()
    own, separate = (f"encoder.trunk.layers.0.{name}" for name in ("key.weight", "core.key.weight"))
    assert torch.equal(state[own], state[separate])
    assert set(found.new.values()) == {"copies of its layer's own"}
    pretrain(recipe, corpus, str(tmp_path / "run"), init_from=first_run)  # which trains them apart
    given = read_weights(str(tmp_path / "run"))
    assert not torch.equal(given.tensors[own], given.tensors[separate])
    again, found = loop_from_weights(recipe, lambda each: Loop(each, corpus), given)
    state = again.model.state_dict()
    assert all(torch.equal(state[name], given.tensors[name]) for name in given.tensors)
    assert found.new == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_workers_begin_as_one_does(
    first_run: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History, parallel: str
) -> None:
    recipe = make_recipe(model={"trunk": {"dropout": 0.0}}, parallel=parallel, ema_decay=0.9)
    pretrain(recipe, corpus, str(tmp_path / "two"), workers=(2, 2), init_from=first_run)
    pretrain(recipe, corpus, str(tmp_path / "one"), init_from=first_run)
    one, two = (
        [line["loss"] for line in history(tmp_path / name) if "loss" in line] for name in ("one", "two")
    )
    assert two == pytest.approx(one, rel=1e-4)
    assert events(tmp_path / "two", but="") == ["init_from", "start", "complete"]
