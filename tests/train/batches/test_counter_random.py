"""Numbers that depend on their key and counter alone, and permutations of any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.train.batches import counter_random as random


def test_splitmix64_gives_its_published_numbers() -> None:
    # The first outputs of splitmix64 for the seed 1234567, as in Vigna's reference program.
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert random.derive(np.uint64(1234567), np.arange(5)).tolist() == known


def test_a_number_depends_on_seed_purpose_sample_and_counter_only() -> None:
    whole = random.bits(3, "masks", np.arange(100), 8)
    assert (random.bits(3, "masks", np.array([70, 4]), 5) == whole[[70, 4], :5]).all()
    assert not (random.bits(4, "masks", np.arange(100), 8) == whole).any()
    assert not (random.bits(3, "crops", np.arange(100), 8) == whole).any()
    assert len(np.unique(whole)) == whole.size


def test_uniform_numbers_are_uniform() -> None:
    drawn = random.uniform(0, "any", np.arange(2000), 50)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=100, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() == pytest.approx(99, abs=5 * np.sqrt(2 * 99))
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.1


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5), seed=st.integers(0, 2**63))
def test_permute_is_a_permutation_of_each_range(sizes: list[int], seed: int) -> None:
    keys = random.derive(np.uint64(seed), np.arange(len(sizes)))
    index = np.concatenate([np.arange(size) for size in sizes])
    placed = random.permute(index, np.repeat(sizes, sizes), np.repeat(keys, sizes))
    for number, part in enumerate(np.split(placed, np.cumsum(sizes)[:-1])):
        assert sorted(part.tolist()) == list(range(sizes[number]))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_every_element_goes_everywhere_equally_often(size: int) -> None:
    keys = random.derive(np.uint64(1), np.arange(4000))
    index = np.tile(np.arange(size), 4000)
    placed = random.permute(index, np.full(len(index), size), np.repeat(keys, size))
    counts = np.bincount(index * size + placed, minlength=size * size)
    assert np.abs(counts / 4000 - 1 / size).max() < 0.03


def test_large_permutations_are_reached_at_random() -> None:
    index = np.array([0, 1, 10**12])
    size = np.full(3, 10**12 + 1)
    placed = random.permute(index, size, np.full(3, 7, dtype=np.uint64))
    assert len(set(placed.tolist())) == 3
    assert (placed <= 10**12).all()
