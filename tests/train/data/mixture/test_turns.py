"""Each directory has its share of every prefix, and no place of a batch for itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.train.data.mixture import fair_turns, shuffled_turns


def furthest_off(turns: np.ndarray, weights: list[int]) -> float:
    """The most samples by which a directory is off its share of the first n turns, over all n."""
    n = np.arange(1, len(turns) + 1)
    return max(
        float(np.abs(np.cumsum(turns == number) - n * weight / sum(weights)).max())
        for number, weight in enumerate(weights)
    )


@settings(max_examples=60)
@given(weights=st.lists(st.integers(1, 40), min_size=2, max_size=7), seed=st.integers(0, 9))
def test_every_prefix_is_within_one_sample_of_the_shares(weights: list[int], seed: int) -> None:
    cycle = fair_turns(weights)
    assert np.bincount(cycle).tolist() == weights
    assert furthest_off(cycle, weights) <= 1 - 1 / (2 * len(weights) - 2) + 1e-9
    turns = np.tile(cycle, 9)
    shuffled = shuffled_turns(turns, weights, seed)
    assert furthest_off(shuffled, weights) < 1
    assert np.bincount(shuffled).tolist() == np.bincount(turns).tolist()


def test_seeds_differ() -> None:
    turns = np.tile(fair_turns([7, 3]), 100)
    one, same, other = (shuffled_turns(turns, [7, 3], seed) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize(("weights", "batch"), [([1, 1], 4), ([7, 3], 20), ([18, 1, 1], 20)])
def test_every_part_of_a_batch_has_some_of_every_directory(weights: list[int], batch: int) -> None:
    turns = np.tile(fair_turns(weights), 65_520 // sum(weights) // batch * batch)
    shuffled = shuffled_turns(turns, weights, 0)
    for number, share in enumerate(np.array(weights) / sum(weights)):
        before, after = (
            (each.reshape(-1, 4, batch // 4) == number).mean(axis=(0, 2)) / share
            for each in (turns, shuffled)
        )
        if share <= 0.5 and sum(weights) == batch:
            assert before.min() == 0  # share and batch resonate
        assert after.min() > 0.4
        assert after.max() < 2
