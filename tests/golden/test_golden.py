"""Behaviour that a change may not touch unnoticed: hashes of shards, losses, exit statuses, and keys of `--json`.

A change that alters one of them on purpose writes the values again and says so in its commit:

    python -m tests.golden.write [data] [recipes] [commands]

`git diff tests/golden` then shows what has changed: of `data` the columns (a change of the vocabulary's
training alters `vocabulary` and the `subword_` columns alone), of `recipes` whose losses, of `commands` which
statuses and keys. The data that recipes train on takes its subwords from tests/golden/kept, so that
vocabularies do not alter `recipes`. Losses and checkpoints are exact on the machine that wrote them
(`machine` in recipes.json), and close on others.
"""

import contextlib
from pathlib import Path

import pytest

from tests.golden import commands, observe

DATA, RECIPES, COMMANDS = (observe.load(name) for name in ("data", "recipes", "commands"))
QUICK = {
    "bert-t5-tiny",
    "byte2word-tiny",
    "canine-c-ngrams-tiny",
    "canine-s-attention-pooling-tiny",
    "canine-s-longformer-tiny",
    "canine-s-tiny",
    "char-bert-tiny",
    "ms-flex-tiny",
}


def _slow_unless(is_quick: bool) -> list[pytest.MarkDecorator]:
    return [] if is_quick else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        pytest.param(name, workers, marks=_slow_unless(workers == 1 or (workers, name) == (2, "rows")))
        for workers in (1, 2, 4)
        for name in DATA["small"]
    ],
)
def test_shards(name: str, workers: int, tmp_path: Path) -> None:
    with observe.inputs(tmp_path) as arguments:
        assert observe.directory(arguments[name], "out", workers) == DATA["small"][name]


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA["real"])
def test_shards_of_real_dumps(name: str, test_data: Path, tmp_path: Path) -> None:
    found = observe.directory(observe.real_inputs(test_data)[name], str(tmp_path / "out"), 2)
    assert found == DATA["real"][name]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return observe.training_data(tmp_path_factory.mktemp("golden"))


def test_no_tiny_recipe_is_missing() -> None:
    assert sorted(RECIPES["recipes"]) == sorted(observe.tiny_recipes())
    assert set(RECIPES["recipes"]) >= QUICK


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_slow_unless(name in QUICK)) for name in RECIPES["recipes"]]
)
def test_losses_and_checkpoint(name: str, data: str, tmp_path: Path) -> None:
    found, known = observe.trained(name, data, str(tmp_path / "run")), RECIPES["recipes"][name]
    if RECIPES["machine"] == observe.machine():
        assert found == known
    assert found["losses"] == pytest.approx(known["losses"], rel=2e-3)
    assert found["validation_loss"] == pytest.approx(known["validation_loss"], rel=2e-3)


def test_commands(tmp_path: Path) -> None:
    commands.prepare(tmp_path)
    with contextlib.chdir(tmp_path):
        found = {line: commands.observed(line) for line in commands.good()}
    assert {line: each for line, each in found.items() if each != COMMANDS.get(line)} == {}
    assert [line for line, each in found.items() if each["status"] != 0] == []


def test_errors(tmp_path: Path) -> None:
    commands.prepare(tmp_path)
    with contextlib.chdir(tmp_path):
        found = {line: commands.observed(line) for line in commands.bad()}
    told = {line: each.pop("error") for line, each in found.items()}
    assert {line: each for line, each in found.items() if each != COMMANDS.get(line)} == {}
    assert {line: error for line, error in told.items() if commands.bad()[line] not in error} == {}
    assert not (tmp_path / "new").exists()
    assert COMMANDS.keys() == {*commands.good(), *commands.bad()}
