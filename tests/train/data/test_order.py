"""Which row each sample is: coverage, shares, and independence of how it is asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.train.data.order import PERIOD, Order, language_shares, quotas_of


def shards_of(*sizes: tuple[str, int]) -> list[ShardEntry]:
    return [ShardEntry("", language, rows, rows, 1000 * rows, 0, "") for language, rows in sizes]


def make_order(
    shards: list[ShardEntry], *, seed: int = 0, smoothing: float = 0.7, streams: int = 4, batch: int = 16
) -> Order:
    return Order(shards, seed=seed, smoothing=smoothing, streams=streams, global_batch=batch)


def streams_of(order: Order, ids: np.ndarray) -> np.ndarray:
    """The stream of each sample."""
    return ids % order._batch // order._each


MANY = shards_of(*((f"l{i:02d}", 1 + 40_000 // (i + 1) ** 2) for i in range(40)))
MIXED = shards_of(("en", 100), ("en", 33), ("de", 41), ("sw", 3), ("fi", 0), ("de", 1))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=6),
    streams=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 2**40),
)
def test_a_stream_reads_each_of_its_rows_once_in_each_epoch(
    sizes: list[tuple[str, int]], streams: int, seed: int
) -> None:
    shards = shards_of(*sizes)
    total = {language: sum(s.rows for s in shards if s.language == language) for language in "ab"}
    if not any(total.values()):
        return
    order = make_order(shards, seed=seed, streams=streams, batch=10)
    ids = np.arange(12_000, dtype=np.int64)
    places, stream = order.locate(ids), streams_of(order, ids)
    language = np.array([shard.language for shard in shards])[places.shard]
    assert (places.row >= 0).all()
    assert (places.row < np.array([shard.rows for shard in shards])[places.shard]).all()
    for name in set(language):
        owned = []
        for k in range(streams):
            mine = (language == name) & (stream == k)
            epochs = [
                sorted(zip(places.shard[at].tolist(), places.row[at].tolist(), strict=True))
                for epoch in range(2)
                if (at := mine & (places.epoch == epoch)).any()
            ]
            assert places.epoch[mine].max() >= 2  # so that the first two are complete
            assert epochs[0] == epochs[1]
            assert len(set(epochs[0])) == len(epochs[0])
            owned += epochs[0]
        if total[name] >= streams:  # together the streams read every row once
            assert len(owned) == len(set(owned)) == total[name]
        else:  # too few to divide: each stream reads them all
            assert len(owned) == streams * total[name]


def test_epochs_and_seeds_differ_in_order_and_nothing_else() -> None:
    shards = shards_of(("en", 400), ("en", 400))
    ids = np.arange(1600, dtype=np.int64)
    one = make_order(shards, streams=1, batch=1).locate(ids)
    rows = one.shard * 400 + one.row
    assert not (rows[:800] == rows[800:]).all()
    other = make_order(shards, seed=1, streams=1, batch=1).locate(ids)
    assert not (other.shard * 400 + other.row == rows).all()
    assert abs(np.corrcoef(rows[:800] % 400, np.arange(800))[0, 1]) < 0.15


def test_reading_is_local() -> None:
    """A stream stays in one shard until it has read its part of it."""
    order = make_order(shards_of(*[("en", 64)] * 12), streams=2, batch=2)
    ids = np.arange(0, 2 * 384, 2, dtype=np.int64)  # the samples of stream 0
    changes = np.count_nonzero(np.diff(order.locate(ids).shard))
    assert changes == 5
    assert set(order.locate(ids).shard.tolist()) == set(range(6))


@pytest.mark.parametrize(("streams", "batch"), [(1, 1), (8, 32), (8, 4096), (64, 256)])
def test_shares_hold_over_any_ten_thousand_samples(streams: int, batch: int) -> None:
    order = make_order(MANY, streams=streams, batch=batch, smoothing=0.5)
    exact = order.shares
    assert exact == pytest.approx(language_shares(np.array([s.characters for s in MANY]), 0.5))
    number = np.array([order.languages.index(s.language) for s in MANY])
    ids = np.arange(200_000, dtype=np.int64) + 3 * PERIOD * streams - 100_000  # over the seam of two periods
    drawn = number[order.locate(ids).shard]
    for index, share in enumerate(exact):
        before = np.cumsum(np.append(0, drawn == index))
        counts = before[10_000:] - before[:-10_000]
        assert np.abs(counts / 10_000 - share).max() < 0.001
        if share > 0.05:
            assert np.abs(counts / (10_000 * share) - 1).max() < 0.01


def test_asking_in_any_order_gives_the_same_places() -> None:
    order = make_order(MIXED)
    ids = np.arange(5000, dtype=np.int64)
    whole = order.locate(ids)
    shuffled = np.random.default_rng(0).permutation(5000)
    fresh = make_order(MIXED).locate(ids[shuffled])
    for part, again in zip(whole, fresh, strict=True):
        assert (part[shuffled] == again).all()


def test_smoothing_is_the_exponent() -> None:
    assert language_shares(np.array([100, 400]), 0.5).tolist() == pytest.approx([1 / 3, 2 / 3])
    assert language_shares(np.array([100, 300]), 1).tolist() == pytest.approx([1 / 4, 3 / 4])
    assert language_shares(np.array([100, 300]), 0).tolist() == pytest.approx([1 / 2, 1 / 2])


def test_mistakes_are_named_with_their_remedy() -> None:
    with pytest.raises(UserError, match=r"train.global_batch: 18 .* train.streams \(4\); make it 20"):
        make_order(MIXED, batch=18)
    with pytest.raises(UserError, match="make it 4,"):
        make_order(MIXED, batch=3)
    with pytest.raises(UserError, match="no windows"):
        make_order(shards_of(("en", 0)))


def test_no_stream_is_left_with_few_languages_where_shares_and_batch_resonate() -> None:
    order = make_order(shards_of(("a", 50), ("b", 50)), streams=4, batch=4)
    ids = np.arange(800, dtype=np.int64)
    stream = streams_of(order, ids)
    language = order.locate(ids).shard
    for k in range(4):
        assert 70 <= np.count_nonzero(language[stream == k]) <= 130


def test_periods_join_without_a_seam_and_serve_all_streams_alike() -> None:
    order = make_order(shards_of(("a", 50), ("b", 7), ("c", 400)), streams=4, batch=16)
    ids = np.arange(4 * PERIOD, dtype=np.int64)
    (shard, row, epoch), stream = order.locate(ids), streams_of(order, ids)
    pair = stream * 3 + shard
    counts = np.bincount(pair, minlength=12)
    # As many of each language after as many periods as streams.
    assert (counts.reshape(4, 3) == counts[:3]).all()
    rows = np.array(
        [[(k + 1) * size // 4 - k * size // 4 for size in (50, 7, 400)] for k in range(4)]
    ).reshape(-1)
    last = counts // rows  # the epoch in which the sequence breaks off
    complete = epoch < last[pair]
    assert (
        len(np.unique(np.stack([pair, epoch, row])[:, complete], axis=1).T)
        == complete.sum()
        == (last * rows).sum()
    )


def test_quotas_sum_up_and_leave_none_out() -> None:
    assert quotas_of(np.array([0.7, 0.3]), 10).tolist() == [7, 3]
    assert quotas_of(np.array([0.999, 0.001]), 8).tolist() == [7, 1]
    assert quotas_of(np.array([0.5, 0.25, 0.25]), 3).tolist() == [1, 1, 1]
