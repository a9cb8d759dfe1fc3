"""Batches are the same on any number of workers, from any step on, and only for the data they began with."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_manifest, load_vocabulary
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.data.loader import Loader, load_windows, slice_of
from tokenfree.train.objectives.canine_s import Config

LENGTH = 64


@pytest.fixture
def make_loader(data: str, vocabulary: Any) -> Callable[..., Loader]:
    def make(*, seed: int = 5, length: int = LENGTH, **changes: Any) -> Loader:
        collator = Config(max_predictions=6).collator(vocabulary, length, seed)
        options = {"global_batch": 12, "smoothing": 0.7, "streams": 4, **changes}
        return Loader(options.pop("data", data), seed=seed, collator=collator, **options)

    return make


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_slices_of_all_workers_are_the_batch_of_one(
    make_loader: Callable[..., Loader], world_size: int
) -> None:
    alone = make_loader()
    workers = [make_loader(rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in (0, 1, 17, 18, 4000):  # 18 batches of 12 are more than an epoch
        parts = [worker.batch(step) for worker in workers]
        assert_equal(
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, alone.batch(step)
        )


def test_a_new_loader_goes_on_at_any_step(make_loader: Callable[..., Loader]) -> None:
    whole = make_loader()
    batches = [whole.batch(step) for step in range(60)]
    for start in (1, 13, 59):
        with make_loader().batches(start, 60) as resumed:
            for step, batch in zip(range(start, 60), resumed, strict=True):
                assert_equal(batch, batches[step])


def test_batches_that_are_left_out(make_loader: Callable[..., Loader]) -> None:
    loader = make_loader()
    with loader.batches(1, 4, left_out={2, 3}) as batches:
        for number, batch in zip((1, 4, 5), batches, strict=True):
            assert_equal(batch, loader.batch(number))


def test_sample_ids_count_through_the_batches(make_loader: Callable[..., Loader]) -> None:
    assert make_loader(rank=1, world_size=3).batch(7)["sample_ids"].tolist() == [88, 89, 90, 91]


def test_the_seed_decides_rows_and_masks(make_loader: Callable[..., Loader]) -> None:
    one, other = make_loader().batch(3), make_loader(seed=6).batch(3)
    assert not np.array_equal(one["codepoints"], other["codepoints"])
    assert not np.array_equal(one["target_ids"], other["target_ids"])


def test_rows_come_as_load_windows_shows_them(make_loader: Callable[..., Loader], data: str) -> None:
    batch = make_loader(length=256).batch(2)
    windows = list(load_windows(data, seed=5, global_batch=12, start=24, stop=36))
    assert len(windows) == 12
    for row, window in enumerate(windows):
        codepoints = [ord(character) for character in window["text"]]
        assert window["codepoints"].tolist() == codepoints
        assert window["whitespace"].tolist() == [character.isspace() for character in window["text"]]
        assert window["document"].startswith(f"train:{window['language']}:")
        assert batch["mask"][row].sum() == len(codepoints) + 2
        # The rest is masked.
        assert np.mean(batch["codepoints"][row, 1 : len(codepoints) + 1] == codepoints) > 0.5


def test_load_windows_of_one_language_and_stream_are_each_row_once(
    make_data: Callable[..., str], tmp_path: Path
) -> None:
    data = make_data(tmp_path, [("train", "en", 30), ("train", "en", 9)])
    windows = [window["document"] for window in load_windows(data, streams=3, global_batch=3)]
    assert sorted(windows) == sorted(f"train:en:{number}" for number in range(39))
    assert windows != sorted(windows)


def test_slices_differ_by_at_most_one() -> None:
    for world_size, size in itertools.product((1, 2, 3, 7), (7, 12, 100)):
        sizes = [
            end - begin for begin, end in (slice_of(rank, world_size, size) for rank in range(world_size))
        ]
        assert sum(sizes) == size
        assert max(sizes) - min(sizes) <= 1


def test_another_data_set_or_seed_is_refused_and_named(
    make_loader: Callable[..., Loader], make_data: Callable[..., str], tmp_path: Path
) -> None:
    loader = make_loader()
    saved = dict(loader.fingerprint)
    make_loader(rank=1, world_size=2).check(saved, "run/checkpoints/step_1")
    with pytest.raises(UserError, match=r"run/checkpoints/step_1 .* \(seed 5, now 6\).*new run"):
        make_loader(seed=6).check(saved, "run/checkpoints/step_1")
    other = make_data(tmp_path, [("train", "en", 30)], seed=1)
    with pytest.raises(UserError, match=f"data '{load_manifest(other).fingerprint}'"):
        loader.check(make_loader(data=other).fingerprint, "run")
    with pytest.raises(UserError, match=r"smoothing 0.7, now 1"):
        make_loader(smoothing=1).check(saved, "run")


def test_mistakes_are_named(make_loader: Callable[..., Loader], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train.global_batch=12 is smaller than the number of workers: 13"):
        make_loader(rank=0, world_size=13)
    with pytest.raises(UserError, match=r"no manifest\.json"):
        make_loader(data=str(tmp_path))


def test_opening_is_left_to_the_first_batch(
    make_data: Callable[..., str], make_loader: Callable[..., Loader], tmp_path: Path
) -> None:
    data = make_data(tmp_path, [("train", "en", 30)])
    (shard,) = (tmp_path / "train").iterdir()
    shard.rename(tmp_path / "elsewhere")
    loader = make_loader(data=data)
    (tmp_path / "elsewhere").rename(shard)
    assert loader.batch(0)["mask"].shape == (12, LENGTH)


def test_with_a_real_vocabulary_only_spans_of_targets_change_and_lengths_stay(corpus: str) -> None:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    pieces = vocabulary.pieces
    collator = Config(mask_fraction=0.5).collator(vocabulary, LENGTH, 0)
    loader = Loader(corpus, global_batch=200, seed=0, smoothing=0.7, streams=2, collator=collator)
    batch = loader.batch(1)
    replaced = 0
    for row, window in enumerate(load_windows(corpus, streams=2, global_batch=200, start=200, stop=400)):
        line = batch["codepoints"][row, 1 : len(window["text"]) + 1].copy()
        assert batch["mask"][row].sum() == len(window["text"]) + 2
        real = batch["target_mask"][row]
        for position, gold in zip(
            batch["target_positions"][row][real] - 1, batch["target_ids"][row][real], strict=True
        ):
            at = np.flatnonzero((window["subword_starts"] <= position) & (position < window["subword_ends"]))[
                0
            ]
            span = slice(int(window["subword_starts"][at]), int(window["subword_ends"][at]))
            assert window["subword_ids"][at] == gold
            assert window["text"][span] == pieces[gold].strip("▁")
            now = "".join(map(chr, line[span]))
            if now not in (window["text"][span], chr(MASK) * len(now)):
                assert now in {piece.strip("▁") for piece in pieces}
                replaced += 1
            line[span] = window["codepoints"][span]
        assert (line == window["codepoints"]).all()
    assert replaced > 20
