"""Data directories without the columns that follow from the text: training and the commands see equal rows."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.config import COLUMNS
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.records import CHARACTER_COLUMNS
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.loader import load_windows
from tokenfree.train.data.mixture import Mixture
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import prepare
from tokenfree.workflows import cli

MakeRecipe = Callable[..., PretrainRecipe]
# One, two, three and four bytes a character, with spaces of one to three bytes.
TEXT = (
    "Geese fly.\n\nÄpfel und Öl. Москва спит.\u00a0日本\u3000語を読む。 मूर्ख \u2003 🦢🦢 ok.\u0085 The end.\n"
)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A data directory with all columns, and one of the same text without those that follow from it."""
    folder = tmp_path_factory.mktemp("directories")
    for number in range(40):
        (folder / f"book_{number}.txt").write_text(
            f"Book {number}. {TEXT * (1 + number % 7)}", encoding="utf-8"
        )
    (folder / "recipe.yaml").write_text(
        yaml.safe_dump(
            {
                "books": [f"{folder}/*.txt"],
                "language": "en",
                "window": {"max_characters": 48},
                "vocabulary": {"size": 400},
                "validation_fraction": 0.2,
            }
        )
    )
    kept = [name for name in COLUMNS if name not in CHARACTER_COLUMNS]
    for name, columns in (("whole", COLUMNS), ("small", kept)):
        command = ["preprocess", str(folder / "recipe.yaml"), "--output", str(folder / name)]
        assert cli.main([*command, "--workers", "1", "--columns", json.dumps(columns)]) == 0
    return {name: str(folder / name) for name in ("whole", "small")}


def assert_equal_rows(rows: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(rows) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(rows[name], value)
        assert getattr(rows[name], "dtype", str) == getattr(value, "dtype", str)


def test_windows_are_equal(directories: dict[str, str]) -> None:
    small, whole = (list(load_windows(directories[name])) for name in ("small", "whole"))
    assert len(small) == len(whole) > 100
    for rows, expected in zip(small, whole, strict=True):
        assert_equal_rows(rows, expected)


def test_size_is_the_number_of_characters(directories: dict[str, str]) -> None:
    small, whole = (ShardReader(directories[name], "train").shard(0) for name in ("small", "whole"))
    assert small.columns() == whole.columns() == list(COLUMNS)
    for name in ("codepoints", "whitespace", "subword_ids"):
        assert [small.size(name, row) for row in range(20)] == [whole.size(name, row) for row in range(20)]


@pytest.mark.parametrize(
    "objective",
    [{"name": "canine_s"}, {"name": "canine_s", "next_sentence": True}, {"name": "canine_c", "heads": 2}],
)
def test_two_steps_have_equal_losses(
    objective: dict[str, Any], directories: dict[str, str], make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(objective=objective)
    losses = []
    for data in directories.values():
        loop = Loop(recipe, data)
        losses.append([*(line["loss"] for line in loop.steps(2)), loop.validate()["validation_loss"]])
    assert losses[0] == losses[1]


def test_mixtures_read_columns_that_some_directories_lack(directories: dict[str, str]) -> None:
    small, whole = directories["small"], directories["whole"]
    readers = [ShardReader(Mixture(paths), "train") for paths in ((small, whole), (whole, small))]
    assert all(reader.manifest.config["columns"] == list(COLUMNS) for reader in readers)
    rows = [
        reader.rows(("codepoints", "whitespace"), np.zeros(9, dtype=np.int64), np.arange(9))
        for reader in readers
    ]
    for name in CHARACTER_COLUMNS:
        for row, expected in zip(rows[0][name], rows[1][name], strict=True):
            np.testing.assert_array_equal(row, expected)


def test_commands_take_them(
    directories: dict[str, str], make_recipe: MakeRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for data in directories.values():
        assert cli.main(["verify", data]) == 0
        capsys.readouterr()
        assert cli.main(["inspect", data, "--json", "--sample", "3"]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["windows"])
    assert outputs[0] == outputs[1]
    assert all(window["masked"] for window in outputs[0])

    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(to_mapping(make_recipe(steps=2))))
    run = str(tmp_path / "run")
    command = ["pretrain", str(tmp_path / "recipe.yaml"), "--data", directories["small"], "--output", run]
    assert cli.main([*command, "--workers", "1"]) == 0
    losses = []
    for data in directories.values():
        capsys.readouterr()
        assert cli.main(["evaluate", run, "--data", data, "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["validation_loss"])
    assert losses[0] == losses[1]

    space = {"model.embedder.hashes": {"choice": [2, 4]}}
    sweep = build(
        SweepRecipe, {"base": to_mapping(make_recipe()), "space": space, "trials": 2}, source="test"
    )
    assert len(prepare(sweep, directories["small"], str(tmp_path / "sweep"))[1].proposed) == 2


def test_shards_are_smaller(directories: dict[str, str]) -> None:
    small, whole = (load_manifest(directories[name]).splits["train"].shards[0] for name in ("small", "whole"))
    assert (small.rows, small.characters) == (whole.rows, whole.characters)
    assert small.bytes < whole.bytes - 4 * whole.characters


def test_without_text_the_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT * 20, encoding="utf-8")
    data = str(tmp_path / "data")
    command = ["preprocess", "--books", str(tmp_path / "book.txt"), "--language", "en", "--output", data]
    columns = ["subword_ids", "subword_starts", "subword_ends"]
    assert cli.main([*command, "--validation_fraction", "0", "--columns", json.dumps(columns)]) == 0
    with pytest.raises(UserError, match="has no column 'codepoints'"):
        ShardReader(data, "train").shard(0).row("codepoints", 0)
