"""A whole sweep under Ray Tune: trials that early stopping ends, the table, the best recipe, and going on."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from preprocess.errors import UserError
from preprocess.settings import build, to_mapping
from train.config import PretrainRecipe
from train.sweep.config import SweepRecipe
from train.sweep.run import run_sweep

SPACE = {"model.embedder.buckets": {"choice": [16, 32, 64]}, "model.downsampler.rate": {"integer": [2, 4]}}


def make_sweep(recipe: PretrainRecipe, **over: Any) -> SweepRecipe:
    mapping = {"base": to_mapping(recipe), "space": SPACE, "trials": 4, "steps": 6, "report_every_steps": 2}
    return build(SweepRecipe, {**mapping, "scheduler": {"grace_steps": 2, "reduction": 2}, **over}, source="test")


def test_a_sweep_ends_in_a_table_and_a_recipe_and_is_not_run_twice(
    corpus: str, make_recipe: Callable[..., PretrainRecipe], tmp_path: Path
) -> None:
    told: list[Any] = []
    sweep = make_sweep(make_recipe())
    result = run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=told.append)
    rows = list(csv.DictReader((tmp_path / "sweep" / "sweep.csv").open(encoding="utf-8")))
    assert [row["trial"] for row in rows] == ["trial_000", "trial_001", "trial_002", "trial_003"]
    assert {row["state"] for row in rows} <= {"finished", "stopped"}
    assert any(row["step"] == "6" for row in rows)
    assert len({(row["model.embedder.buckets"], row["model.downsampler.rate"]) for row in rows}) == 4
    assert {row["model.downsampler.rate"] for row in rows} <= {"2", "4"}  # 3 does not divide the length
    assert sum(result.skipped.values()) >= 1
    assert told
    assert told[-1]["ended"] == 4

    best = yaml.safe_load((tmp_path / "sweep" / "best.yaml").read_text(encoding="utf-8"))
    again = build(PretrainRecipe, best, source="best.yaml")
    assert again.train.steps == make_recipe().train.steps  # the base's own, not the trials' budget
    assert result.best is not None
    assert again.model.embedder.buckets == result.best.values["model.embedder.buckets"]

    before = (tmp_path / "sweep" / "sweep.csv").read_bytes()
    told.clear()
    assert run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=told.append).already_complete
    assert (tmp_path / "sweep" / "sweep.csv").read_bytes() == before
    assert not told
    with pytest.raises(UserError, match="another sweep"):
        run_sweep(make_sweep(make_recipe(), trials=3), corpus, str(tmp_path / "sweep"))


def test_a_space_that_cannot_work_is_refused_before_anything_starts(
    corpus: str, make_recipe: Callable[..., PretrainRecipe], tmp_path: Path
) -> None:
    output = str(tmp_path / "sweep")
    with pytest.raises(UserError, match=r"model\.embedder\.bukets.*did you mean 'buckets'"):
        run_sweep(make_sweep(make_recipe(), space={"model.embedder.bukets": {"choice": [1]}}), corpus, output)
    with pytest.raises(UserError, match=r"only 1 settings can be run"):
        run_sweep(
            make_sweep(
                make_recipe(), space={"model.downsampler.rate": {"choice": [3, 4, 5]}, "train.seed": {"choice": [1]}}
            ),
            corpus,
            output,
        )
    assert not (tmp_path / "sweep").exists()
