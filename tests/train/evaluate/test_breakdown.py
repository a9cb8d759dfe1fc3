"""Scores by language and by script, against counting by loops."""

import dataclasses
import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.conftest import MakeRecipe
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import DatasetSplit, load_manifest, save_manifest
from tokenfree.preprocess.text.characters import scripts_of
from tokenfree.train.batches.base import MASKED
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.evaluate import breakdown, by_language_and_script, score
from tokenfree.train.loop.pretraining import Loop

OBJECTIVES: dict[str, Mapping[str, Any]] = {
    "canine_s": {"name": "canine_s"},
    "canine_s with pairs": {"name": "canine_s", "next_sentence": True},
    "canine_c": {"name": "canine_c", "heads": 2, "buckets": 64},
    "masked_characters": {"name": "masked_characters", "buckets": 64},
    "masked_subwords": {"name": "masked_subwords"},
    "masked_bytes": {"name": "masked_bytes"},
    "byte2word": {"name": "byte2word"},
}


def test_groups_are_in_order_of_their_targets() -> None:
    names = np.array(["b", "c", "a", "c", "b", "c"])
    found = breakdown(
        names, {"loss": np.arange(6.0), "accuracy": np.array([True, False, True, True, True, False])}
    )
    assert found == [
        {"name": "c", "targets": 3, "loss": 3.0, "accuracy": pytest.approx(1 / 3)},
        {"name": "b", "targets": 2, "loss": 2.0, "accuracy": 1.0},
        {"name": "a", "targets": 1, "loss": 2.0, "accuracy": 1.0},
    ]
    assert [group["name"] for group in breakdown(names[:3], {})] == ["a", "b", "c"]
    assert breakdown(names[:0], {"loss": np.zeros(0)}) == []


def test_the_language_of_a_window_is_that_of_its_shard(corpus: str, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "data")
    manifest = load_manifest(str(tmp_path / "data"))
    (shard,) = manifest.splits["validation"].shards
    shards = tuple(
        dataclasses.replace(shard, language=name, rows=rows) for name, rows in (("de", 3), ("en", 2))
    )
    splits = {**manifest.splits, "validation": DatasetSplit(shards)}
    save_manifest(Storage.at(str(tmp_path / "data")), dataclasses.replace(manifest, splits=splits))
    reader = ShardReader(str(tmp_path / "data"), "validation")
    found = [reader.shards[number].language for number in reader.shards_of(np.array([0, 2, 2, 3, 4]))]
    assert found == ["de", "de", "de", "en", "en"]


def expected_scripts(loop: Loop, name: str) -> dict[str, int]:
    """How many hidden targets each script has, by the text of each of them."""
    pieces = [] if loop.windows.vocabulary is None else loop.windows.vocabulary.pieces
    counts: dict[str, int] = defaultdict(int)
    for arrays in loop.windows.held_out():
        for row, real in enumerate(arrays["target_mask"]):
            for at in np.flatnonzero(real & (arrays["target_kinds"][row] == MASKED)):
                id_ = arrays["target_ids"][row, at]
                is_character = name in ("canine_c", "masked_bytes", "masked_characters")
                text = (
                    chr(arrays["target_codepoints"][row, at])
                    if is_character
                    else pieces[id_].replace("▁", "")
                )
                assert not is_character or name == "masked_bytes" or ord(text) % 64 == id_
                scripts = [script for script in map(str, scripts_of(np.array([*map(ord, text)]))) if script]
                counts[scripts[0] if scripts else ""] += 1
    return counts


@pytest.mark.parametrize("name", OBJECTIVES)
def test_hidden_targets_by_script_and_language(name: str, corpus: str, make_recipe_for: MakeRecipe) -> None:
    loop = Loop(make_recipe_for(OBJECTIVES[name], validation_windows=40), corpus)
    baselines, own = loop.windows.baselines(), score(loop)
    assert baselines is not None
    found = by_language_and_script(loop, baselines, own)
    counts = expected_scripts(loop, name)
    assert {group["name"]: group["targets"] for group in found["scripts"]} == counts
    assert {"Latin", ""} <= counts.keys()
    (english,) = found["languages"]
    hidden = own.hidden_N
    assert english["name"] == "en"
    assert english["targets"] == hidden.sum()
    assert english["loss"] == pytest.approx(own.loss_N[hidden].mean())
    assert english["accuracy"] == pytest.approx(own.correct_N[hidden].mean())
    assert english["without_context"] == pytest.approx(baselines.best_masked_only_N[hidden].mean())
    for what in ("loss", "accuracy", "without_context"):
        sums = sum(group["targets"] * group[what] for group in found["scripts"])
        assert sums / hidden.sum() == pytest.approx(english[what])


def test_groups_do_not_depend_on_the_batch(corpus: str, make_recipe_for: MakeRecipe) -> None:
    found = []
    for micro_batch in (None, 2):
        recipe = make_recipe_for({"name": "canine_s"}, validation_windows=10, micro_batch=micro_batch)
        loop = Loop(recipe, corpus)
        baselines = loop.windows.baselines()
        assert baselines is not None
        found.append(by_language_and_script(loop, baselines, score(loop))["scripts"])
    for one, other in zip(*found, strict=True):
        assert other == {
            name: value if isinstance(value, str) else pytest.approx(value) for name, value in one.items()
        }
