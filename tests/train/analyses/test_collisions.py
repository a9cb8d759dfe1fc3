"""Shared buckets against counting by hand, and what is expected against drawing."""

from pathlib import Path

import numpy as np
import pytest

from tests.train.analyses.conftest import MakeModel
from tokenfree.core.errors import UserError
from tokenfree.train.analyses.collisions import collisions, count_characters, expected_shares, shared_buckets


def test_against_loops() -> None:
    rng = np.random.default_rng(0)
    buckets = rng.integers(7, size=(40, 3))
    buckets[5] = buckets[9]
    each_NK, all_N = shared_buckets(buckets)
    for one in range(40):
        others = [other for other in range(40) if other != one]
        each = [any(buckets[one, k] == buckets[other, k] for other in others) for k in range(3)]
        assert each_NK[one].tolist() == each
        assert all_N[one] == any((buckets[one] == buckets[other]).all() for other in others)
    assert all_N[5]
    assert not all_N.all()


def test_a_bucket_with_different_others_in_each_hash_is_not_all() -> None:
    each_NK, all_N = shared_buckets(np.array([[0, 0], [0, 1], [1, 0]]))
    assert each_NK[0].tolist() == [True, True]
    assert not all_N.any()


def test_what_is_expected_is_what_drawing_gives() -> None:
    rng = np.random.default_rng(0)
    found = [shared_buckets(rng.integers(8, size=(6, 2))) for _ in range(4000)]
    expected = expected_shares(6, 8, 2)
    assert expected["hash"] == pytest.approx(1 - (7 / 8) ** 5)
    assert expected["hash"] == pytest.approx(np.mean([each_NK.mean() for each_NK, _ in found]), abs=0.01)
    assert expected["all"] == pytest.approx(np.mean([all_N.mean() for _, all_N in found]), abs=0.01)
    assert expected_shares(1, 8, 2) == {"hash": 0, "all": 0}
    assert expected_shares(2, 1, 2) == {"hash": 1, "all": 1}


def test_characters_a_multiple_of_the_buckets_apart_share_all(make_model: MakeModel, tmp_path: Path) -> None:
    """The official family with 64 buckets: U+0061 and U+00E1 are twice as many apart."""
    path = tmp_path / "text"
    path.write_text("aaaa á\nb\n", encoding="utf-8")
    found = collisions(make_model(), str(path))
    rows = {(row["group"], row["name"]): row for row in found["rows"]}
    assert list(rows) == [("all", ""), ("script", "Latin"), ("script", "")]
    whole, latin, space = rows.values()
    assert (whole["characters"], whole["occurrences"]) == (4, 7)
    assert whole["hash"] == whole["all"] == 2 / 4
    assert whole["hash_expected"] == pytest.approx(1 - (63 / 64) ** 3)
    assert latin["all"] == 2 / 3
    assert space["all"] == 0
    independent = collisions(make_model(embedder={"family": "independent"}), str(path))["rows"][0]
    assert independent["all"] == 0


def test_a_data_directory_is_counted_by_language_in_all_splits(corpus: str, make_model: MakeModel) -> None:
    counts = count_characters(corpus)
    assert list(counts) == ["en"]
    assert sum(count_characters(corpus, 3)["en"].values()) < sum(counts["en"].values())
    found = collisions(make_model(), corpus)
    assert found["rows"][0]["occurrences"] == sum(counts["en"].values())
    assert {row["group"] for row in found["rows"]} == {"all", "language", "script"}
    texts = "".join(bytes(row).decode() for split in ("train", "validation") for row in _texts(corpus, split))
    assert counts["en"][ord("e")] == texts.count("e")


def test_other_embedders_have_none(make_model: MakeModel) -> None:
    with pytest.raises(UserError, match="ngram_hash, which hashes no single codepoints"):
        collisions(make_model(embedder={"name": "ngram_hash", "buckets": 64}), "nowhere")
    with pytest.raises(UserError, match="name texts with --data"):
        collisions(make_model())


def _texts(corpus: str, split: str) -> list[np.ndarray]:
    from tokenfree.train.data.shards import ShardReader

    reader = ShardReader(corpus, split)
    _, shards, rows = reader.spread(10**6)
    return reader.rows(("text",), shards, rows)["text"]
