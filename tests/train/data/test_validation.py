"""Validation sees the same windows and masks always."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import VALIDATION_SEED, validation_batches
from tokenfree.train.objectives.canine_s import Config


@pytest.fixture
def validate(data: str, vocabulary: Any) -> Callable[..., list[dict[str, np.ndarray]]]:
    def run(**changes: Any) -> list[dict[str, np.ndarray]]:
        options = {
            "data": data,
            "objective": Config(max_predictions=6),
            "length": 64,
            "num_windows": 20,
            **changes,
        }
        objective, length = options.pop("objective"), options.pop("length")
        collator = objective.collator(vocabulary, length, VALIDATION_SEED)
        return list(
            validation_batches(ShardReader(options.pop("data"), "validation"), collator=collator, **options)
        )

    return run


def joined(batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_windows_are_spread_over_the_split(validate: Callable[..., list[dict[str, np.ndarray]]]) -> None:
    assert joined(validate())["sample_ids"].tolist() == [33 * i // 20 for i in range(20)]
    assert joined(validate(num_windows=500))["sample_ids"].tolist() == list(range(33))


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("world_size", [1, 3])
def test_batch_size_and_workers_change_nothing(
    validate: Callable[..., list[dict[str, np.ndarray]]], batch: int, world_size: int
) -> None:
    whole = joined(validate())
    parts = [validate(batch=batch, rank=rank, world_size=world_size) for rank in range(world_size)]
    found = joined([one for part in parts for one in part])
    order = np.argsort(found["sample_ids"])
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name][order], array)


def test_masks_of_a_window_do_not_depend_on_how_many_are_seen(
    validate: Callable[..., list[dict[str, np.ndarray]]],
) -> None:
    few, all_windows = joined(validate()), joined(validate(num_windows=33))
    for name, array in few.items():
        np.testing.assert_array_equal(all_windows[name][few["sample_ids"]], array)


def test_a_data_set_without_validation_says_so(
    make_data: Callable[..., str], validate: Callable[..., Any], tmp_path: Path
) -> None:
    only_training = make_data(tmp_path / "a", [("train", "en", 5)])
    with pytest.raises(UserError, match=r"has no split 'validation' .*validation_fraction"):
        validate(data=only_training)


def test_workers_that_act_together_have_as_many_batches(
    validate: Callable[..., list[dict[str, np.ndarray]]],
) -> None:
    parts = [validate(num_windows=5, batch=2, rank=rank, world_size=3, together=True) for rank in range(3)]
    assert [len(part) for part in parts] == [3, 3, 3]
    ids = [np.concatenate([batch["sample_ids"] for batch in part]) for part in parts]
    assert sorted(np.concatenate(ids).tolist()) == joined(validate(num_windows=5))["sample_ids"].tolist()
    assert all(
        len(batch["codepoints"]) == max(len(batch["sample_ids"]), 1) for part in parts for batch in part
    )
