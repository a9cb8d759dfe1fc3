"""The options of `tokenfree pretrain`: what is printed before anything starts, and mistakes in one line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import load_data_vocabulary
from tokenfree.train.runs.config import read_config
from tokenfree.workflows import cli

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture
def recipe(make_recipe: MakeRecipe, tmp_path: Path) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(to_mapping(make_recipe(steps=2))))
    return str(path)


def test_a_dry_run_tells_what_would_be(
    recipe: str, first_run: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["pretrain", recipe, "--data", corpus, "--output", str(tmp_path / "run")]
    dry = ["--model.trunk.layers", "3", "--dry-run"]
    assert cli.main([*run, *dry, "--init-from", first_run]) == 0
    fits, loaded, new, settings, time = capsys.readouterr().out.splitlines()
    assert fits.endswith("and 1 worker")
    assert re.match(r"  time        about \d+ seconds? on this machine", time)
    assert loaded.startswith(f"weights of {first_run} (step 8 of a run): 69 of 69 tensors loaded")
    assert new == "  new: encoder.trunk.layers: not in the given weights"
    assert settings == "  settings that differ: model.trunk.layers 3, there 1"
    assert not (tmp_path / "run").exists()
    longer = ["pretrain", recipe, "--data", corpus, "--output", first_run, "--dry-run", "--extend-to"]
    assert cli.main([*longer, "16"]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .startswith("made longer, from 8 to 16 steps; step 9 and those after")
    )
    assert cli.main([*longer, "8"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_run_resumes_by_its_folder_alone(
    recipe: str, first_run: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert cli.main(["pretrain", "--output", run]) == 2
    assert "RECIPE and --data: missing, and" in capsys.readouterr().err
    command = [
        "pretrain",
        recipe,
        "--data",
        corpus,
        "--init-from",
        first_run,
        "--train.seed",
        "3",
        "--output",
        run,
    ]
    assert cli.main(command) == 0
    for again in (["--extend-to", "10"], [f"{run}/config.yaml", "--init-from", first_run]):
        assert cli.main(["pretrain", "--output", run, *again]) == 0
        assert "(10 steps)" in capsys.readouterr().out or again[0] == "--extend-to"
    assert cli.main(["pretrain", "--output", run, "--train.seed", "4"]) == 2
    assert "train.seed is 4, was 3" in capsys.readouterr().err


def test_what_was_loaded_and_the_new_rate_are_told_while_it_trains(
    recipe: str, first_run: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["pretrain", recipe, "--data", corpus, "--output", str(tmp_path / "run"), "--init-from", first_run]
    assert cli.main(run) == 0
    assert f"weights of {first_run} (step 8 of a run): 69 of 69 tensors loaded" in capsys.readouterr().err
    assert cli.main([*run, "--extend-to", "4"]) == 0
    told = capsys.readouterr().err
    assert "have the learning rate of a run of 4 steps" in told
    assert "step 4/4" in told
    assert cli.main([*run, "--extend-to", "4"]) == 0
    assert "already complete (4 steps); nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--init-from", "google/canine-s"], "--init-from {here}/google/canine-s: this holds neither a run"),
        (["--init-from", "recipe.yaml"], "--init-from {here}/recipe.yaml: this holds neither a run"),
        (["--init-from", "nosuch://bucket/run"], "nosuch://bucket/run: no file system for this address"),
        (["--extend-to", "4"], "--extend-to 4: {here}/run is not a run yet; begin it with --train.steps 4"),
        (["--extend-to", "many"], "argument --extend-to: invalid int value: 'many'"),
    ],
)
def test_mistakes(
    options: list[str], words: str, recipe: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(["pretrain", recipe, "--data", corpus, "--output", "run", *options])
    except SystemExit as ended:
        status = ended.code
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert words.format(here=tmp_path) in line
    assert not (tmp_path / "run").exists()


def test_the_table_of_subwords_has_the_rows_that_the_data_need(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "small.yaml"
    recipe.write_text("base: bert-tiny\nmodel: {embedder: {size: 7}}\ntrain: {steps: 1, length: 40}\n")
    assert cli.main(["pretrain", str(recipe), "--data", corpus, "--output", str(tmp_path / "run")]) == 0
    vocabulary, rows = load_data_vocabulary(corpus), read_config(tmp_path / "run").recipe.model.embedder.size
    assert vocabulary is not None
    assert rows == vocabulary.size + 3

    capsys.readouterr()
    asked = ["--model.embedder.size", "7"]
    assert (
        cli.main(["pretrain", str(recipe), "--data", corpus, "--output", str(tmp_path / "other"), *asked])
        == 2
    )
    assert "model.embedder.size: 7 rows are too few" in capsys.readouterr().err
