"""Several data directories in one order: exact shares, the same on any number of workers, and nothing new for one."""

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.data.test_loader import LENGTH, assert_equal
from tests.train.data.test_order import MANY, MIXED, make_order, shards_of
from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import ShardEntry, load_manifest, save_manifest
from tokenfree.train.batches.base import Collator
from tokenfree.train.data.loader import Loader, load_windows
from tokenfree.train.data.mixture import Mixing, Mixture
from tokenfree.train.data.order import PERIOD, Order
from tokenfree.train.data.shards import ShardReader, load_contents
from tokenfree.train.data.validation import validation_batches
from tokenfree.train.objectives.canine_s import Config

OTHER = [*(("train", "en", 9), ("train", "fi", 20), ("train", "fi", 31)), ("validation", "fi", 11)]


@pytest.fixture(scope="module")
def other(make_data: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_data(tmp_path_factory.mktemp("other"), OTHER, num_words=5, seed=7)


@pytest.fixture(scope="module")
def collator(vocabulary: Any) -> Collator:
    return Config(max_predictions=6).collator(vocabulary, LENGTH, 5)


@pytest.fixture
def make_loader(data: str, other: str, collator: Collator) -> Callable[..., Loader]:
    def make(weights: tuple[float, ...] | None = (0.7, 0.3), **changes: Any) -> Loader:
        options: dict[str, Any] = {"global_batch": 16, "smoothing": 0.7, "streams": 4, "seed": 5, **changes}
        return Loader(Mixture((data, other), weights), collator=collator, **options)

    return make


def mixed_order(
    weights: tuple[int, ...], *, streams: int = 4, batch: int = 16, seed: int = 0
) -> tuple[Order, np.ndarray]:
    """An order over directories of two languages each, and the number of the directory of each shard."""
    shards: list[ShardEntry] = []
    of_shard: list[int] = []
    for number in range(len(weights)):
        own = shards_of(("en", 50 + number), ("en", 7), (f"l{number}", 20))
        shards += own
        of_shard += [number] * len(own)
    mixing = Mixing(weights, tuple(of_shard))
    order = Order(shards, seed=seed, smoothing=0.7, streams=streams, global_batch=batch, mixing=mixing)
    return order, np.array(of_shard)


@pytest.mark.parametrize(
    ("weights", "streams", "batch"),
    [((7, 3), 4, 16), ((1, 1), 4, 4), ((18, 1, 1), 4, 20), ((3, 5, 7, 11), 1, 1), ((997, 3), 8, 32)],
)
def test_shares_are_exact_within_one_sample_over_any_prefix(
    weights: tuple[int, ...], streams: int, batch: int
) -> None:
    order, of_shard = mixed_order(weights, streams=streams, batch=batch)
    period = len(order._languages)  # after which all shares are met exactly
    for first in (0, 3 * period):
        ids = first + np.arange(20_000, dtype=np.int64)
        drawn = of_shard[order.locate(ids).shard]
        for number, weight in enumerate(weights):
            off = np.cumsum(drawn == number) - np.arange(1, len(ids) + 1) * weight / sum(weights)
            assert np.abs(off).max() < 1
    turns = of_shard[order.locate(np.arange(period, dtype=np.int64)).shard]
    assert np.bincount(turns).tolist() == [period * weight // sum(weights) for weight in weights]


def test_large_weights_are_exact_to_a_part_of_a_period() -> None:
    weights = (1_000_003, 70_001, 50)
    order, of_shard = mixed_order(weights)
    ids = np.arange(2 * PERIOD, dtype=np.int64)
    counts = np.bincount(of_shard[order.locate(ids).shard])
    assert np.abs(counts / counts.sum() - np.array(weights) / sum(weights)).max() < 2 / PERIOD


def test_every_row_of_every_directory_is_read_once_in_an_epoch_of_its_stream() -> None:
    order, _ = mixed_order((7, 3), batch=20)
    ids = np.arange(5 * PERIOD, dtype=np.int64)  # after four all streams have had the rows of all
    places = order.locate(ids)
    # One number of each: a shard has fewer than 64 rows.
    rows = places.shard * 64 + places.row
    found, times = np.unique(places.epoch * 6 * 64 + rows, return_counts=True)
    assert times.max() == 1  # no row twice in an epoch
    assert np.count_nonzero(found < 6 * 64) == sum((50, 7, 20, 51, 7, 20))  # and each in the first


def test_languages_of_a_directory_share_what_it_has() -> None:
    order, _ = mixed_order((3, 1))
    languages = {"0/en": 57, "0/l0": 20, "1/en": 58, "1/l1": 20}
    smoothed = {name: rows**0.7 for name, rows in languages.items()}
    expected = [
        (0.75 if name[0] == "0" else 0.25)
        * smoothed[name]
        / sum(value for each, value in smoothed.items() if each[0] == name[0])
        for name in order.languages
    ]
    assert order.shares.tolist() == pytest.approx(expected)
    shard = order.locate(np.arange(PERIOD, dtype=np.int64)).shard
    drawn = np.bincount(np.array([0, 0, 1, 2, 2, 3])[shard], minlength=4) / PERIOD
    assert np.abs(drawn - expected).max() < 2 / PERIOD * 4


# Workers that share a batch of 16 evenly, and that do not.
@pytest.mark.parametrize(
    "world_size", [2, 3, pytest.param(1, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_batches_are_the_same_on_any_number_of_workers(
    make_loader: Callable[..., Loader], world_size: int
) -> None:
    alone = make_loader()
    workers = [make_loader(rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in (0, 1, 17, 4000, 4096, 9000):  # 4,096 batches are a period
        parts = [worker.batch(step) for worker in workers]
        assert_equal(
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, alone.batch(step)
        )


def test_a_new_loader_goes_on_at_any_step(make_loader: Callable[..., Loader]) -> None:
    whole = make_loader()
    with make_loader().batches(4090, 4100) as resumed:
        for step, batch in zip(range(4090, 4100), resumed, strict=True):
            assert_equal(batch, whole.batch(step))


def test_another_mixture_is_refused(
    make_loader: Callable[..., Loader], data: str, collator: Collator
) -> None:
    saved = make_loader().fingerprint
    make_loader((7, 3)).check(saved, "run")  # the same proportion
    alone = Loader(data, collator=collator, global_batch=16, smoothing=0.7, streams=4, seed=5)
    for loader in (make_loader((0.6, 0.4)), make_loader(None), alone):
        with pytest.raises(UserError, match="run was trained on other samples"):
            loader.check(saved, "run")


def test_windows_are_those_of_the_batches(data: str, other: str, make_loader: Callable[..., Loader]) -> None:
    windows = list(load_windows([f"{data}:0.7", f"{other}:0.3"], seed=5, global_batch=16, stop=32))
    batch = np.concatenate([make_loader().batch(step)["mask"].sum(axis=1) for step in (0, 1)])
    short = [row for row, window in enumerate(windows) if len(window["text"]) < 50]
    assert batch[short].tolist() == [len(windows[row]["text"]) + 2 for row in short]
    from_other = [window for window in windows if len(window["text"].split(" ")) == 5]
    assert 9 <= len(from_other) <= 10  # 30% of 32


def test_without_weights_a_share_is_that_of_the_characters(data: str, other: str) -> None:
    mixing = load_contents(Mixture((data, other)))[1]
    assert mixing is not None
    characters = [load_manifest(path).splits["train"].characters for path in (data, other)]
    assert mixing["train"].shares.tolist() == pytest.approx([each / sum(characters) for each in characters])


def test_validation_windows_are_shared_out_by_weight(data: str, other: str, collator: Collator) -> None:
    mixture = Mixture((data, other), (0.75, 0.25))
    numbers, shards, _ = ShardReader(mixture, "validation").spread(16)
    assert np.bincount(ShardReader(mixture, "validation").directories_of(shards)).tolist() == [12, 4]
    alone = ShardReader(data, "validation").spread(12)[0]
    assert numbers[:12].tolist() == alone.tolist()  # so that masks are those of the directory alone
    batches = list(
        validation_batches(ShardReader(mixture, "validation"), collator=collator, num_windows=16, batch=5)
    )
    assert [len(batch["mask"]) for batch in batches] == [5, 5, 2, 4]  # none of both directories
    whole = ShardReader(mixture, "validation").spread(1)[1]
    assert len(whole) == 2  # at least one of each


def test_a_directory_without_validation_windows_gives_none(
    data: str, make_data: Callable[..., str], tmp_path: Path
) -> None:
    without = make_data(tmp_path, [("train", "en", 30)], seed=3)
    for paths in ((data, without), (without, data)):
        numbers, _, _ = ShardReader(Mixture(paths, (0.5, 0.5)), "validation").spread(8)
        assert len(numbers) == 8
        assert numbers.max() < 33


def test_directories_that_cannot_be_read_as_one_are_named(
    data: str, other: str, make_data: Callable[..., str], tmp_path: Path
) -> None:
    for paths in ((data, f"{data}/"), (other, data, data)):
        with pytest.raises(UserError, match=f"{data} and {data}/? hold the same shards; give one"):
            load_contents(Mixture(paths))
    foreign = make_data(tmp_path / "foreign", [("train", "en", 9)], seed=2)
    manifest = load_manifest(foreign)
    save_manifest(Storage.at(foreign), type(manifest)(**{**vars(manifest), "vocabulary_sha256": "1" * 64}))
    with pytest.raises(
        UserError, match=f"^{data} and {foreign} have different subword vocabularies; preprocess"
    ):
        load_contents(Mixture((data, foreign)))
    empty = make_data(tmp_path / "empty", [("validation", "en", 9)])
    with pytest.raises(UserError, match=f"^{empty} has no windows to train on; leave it out"):
        load_contents(Mixture((data, empty)))


def test_a_share_too_small_for_its_languages_is_refused() -> None:
    shards = shards_of(("en", 1000), *((f"l{number}", 3) for number in range(60)))
    mixing = Mixing((100_000, 1), (0, *itertools.repeat(1, 60)))
    with pytest.raises(
        UserError, match=r"data directory 2 of 2: its 60 languages are given 1 of 65,536 samples"
    ):
        Order(shards, seed=0, smoothing=1, streams=4, global_batch=16, mixing=mixing)


@pytest.mark.parametrize(
    ("shards", "options", "expected"),
    [
        (MANY, {}, "45d81e4c614f9123562f27e4a7942a05"),
        (MIXED, {}, "a56673d02806fe6dd8a7b5dae71c4a0c"),
        (MANY, {"streams": 8, "batch": 32, "smoothing": 0.5, "seed": 3}, "7e8dea695204d9a3a1e2cbeabcc2891b"),
    ],
)
def test_the_order_of_one_directory_is_what_it_was(
    shards: list[ShardEntry], options: dict[str, Any], expected: str
) -> None:
    places = make_order(shards, **options).locate(np.arange(0, 300_000, 7, dtype=np.int64))
    content = b"".join(np.ascontiguousarray(part, dtype=np.int64).tobytes() for part in places)
    assert hashlib.sha256(content).hexdigest()[:32] == expected
