"""The order of items: a function of sizes, seed and number of the batch; all of an epoch; of about one size."""

import numpy as np
import pytest

from tokenfree.train.loop.finetuning import POOL, SizedOrder

SIZES = np.random.default_rng(0).integers(5, 200, 1000)


@pytest.mark.parametrize("batch", [1, 7, 16])
def test_each_epoch_has_each_item_once(batch: int) -> None:
    order = SizedOrder(SIZES, batch=batch, seed=1)
    pools = 3 * len(SIZES) // batch // POOL
    counts = np.bincount(
        np.concatenate([order.items(number) for number in range(pools * POOL)]), minlength=len(SIZES)
    )
    assert counts.sum() == pools * POOL * batch
    assert counts.max() - counts.min() <= 1


def test_any_batch_can_be_asked_for_first() -> None:
    forward, backward = SizedOrder(SIZES, batch=16, seed=1), SizedOrder(SIZES, batch=16, seed=1)
    ahead = [forward.items(number).tolist() for number in range(300)]
    assert [backward.items(number).tolist() for number in reversed(range(300))] == ahead[::-1]
    assert ahead != [SizedOrder(SIZES, batch=16, seed=2).items(number).tolist() for number in range(300)]


def test_batches_are_of_about_one_size_in_no_order_of_size() -> None:
    order = SizedOrder(SIZES, batch=16, seed=1)
    batches = [SIZES[order.items(number)] for number in range(2 * POOL)]
    assert np.mean([batch.max() - batch.min() for batch in batches]) < 10  # by chance it is about 170
    means = [batch.mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_fewer_items_than_a_batch_come_again() -> None:
    order = SizedOrder([3, 9], batch=5, seed=0)
    assert sorted(np.concatenate([order.items(0), order.items(1)]).tolist()) == [0] * 5 + [1] * 5
