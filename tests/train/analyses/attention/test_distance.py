"""Distances of heads whose attention is known."""

from typing import Any

import pytest
import torch

from tests.train.analyses.conftest import MakeModel
from tokenfree.train.analyses.attention import attention_distances
from tokenfree.train.analyses.subject import AnalysedModel, SampledTexts

ABS = {"positions": {"name": "diet_abs", "max_units": 64, "rank": 64, "sharing": "none"}}


@torch.no_grad()
def look_at(model: AnalysedModel, head: int, key_of: list[int]) -> None:
    """Let a head of the only layer see of all keys that of each query alone."""
    layer: Any = model.encoder.trunk.layers[0]
    positions = model.encoder.trunk.positions
    for part in (layer.query, layer.key):
        part.weight.zero_()
        part.bias.zero_()
    positions.keys_LHKR[0, head] = torch.eye(64)
    positions.queries_LHUR[0, head] = 0
    for query, key in enumerate(key_of):
        positions.queries_LHUR[0, head, query, key] = 1000


def test_a_head_that_looks_k_units_away_has_the_distance_k(make_model: MakeModel) -> None:
    model = make_model(trunk=ABS)
    for head in range(4):  # k = 5 head, to the left where there is so much text, else to the right
        look_at(
            model, head, [query - 5 * head if query >= 5 * head else query + 5 * head for query in range(64)]
        )
    found = attention_distances(model, SampledTexts(["x" * 38, "y" * 30], 0))
    rows = found["rows"]
    assert [row["distance"] for row in rows] == [row["strongest"] for row in rows] == [0, 5, 10, 15]
    for row in rows:
        counts = [0] * 33
        counts[int(row["distance"])] = 40 + 32
        assert row["strongest_counts"] == counts
    assert [row["entropy"] for row in rows] == [0, 0, 0, 0]
    assert [row["itself"] for row in rows] == [1, 0, 0, 0]
    assert found["texts"] == 2
    assert found["units"] == 36  # (40 + 32) / 2, CLS and SEP among them


def test_the_shares_of_cls_and_sep_and_real_queries_alone_count(make_model: MakeModel) -> None:
    model = make_model(trunk=ABS)
    look_at(model, 0, [0] * 64)  # CLS
    look_at(model, 1, [11] * 64)  # SEP of the text of ten, an ordinary character of the other
    texts = SampledTexts(["x" * 10, "y" * 20], 0)
    cls, at_11 = attention_distances(model, texts)["rows"][:2]
    assert cls["cls"] == 1
    assert cls["sep"] == 0
    # 0 + 1 + ... + 11 for the 12 units of one, + ... + 21 for the 22 of the other; padding would add larger
    # ones.
    assert cls["distance"] == pytest.approx((66 + 231) / 34)
    assert at_11["sep"] == pytest.approx(12 / 34)
    assert at_11["itself"] == pytest.approx(2 / 34)


@torch.no_grad()
def test_the_strongest_key_alone_counts_however_weak(make_model: MakeModel) -> None:
    model = make_model(trunk=ABS)
    look_at(model, 0, [0] * 64)
    model.encoder.trunk.positions.queries_LHUR[0, 0] /= 1000  # CLS has e times the weight of each other key
    row = attention_distances(model, SampledTexts(["x" * 48], 0))["rows"][0]
    assert row["cls"] < 0.1
    assert row["strongest"] == sum(range(50)) / 50
    assert row["strongest_counts"] == [1] * 32 + [50 - 32]


def test_uniform_attention_has_the_distance_and_the_entropy_that_are_told_for_it(
    make_model: MakeModel,
) -> None:
    model = make_model()
    with torch.no_grad():
        layer: Any = model.encoder.trunk.layers[0]
        for parameter in layer.query.parameters():
            parameter.zero_()
    found = attention_distances(model, SampledTexts(["x" * 14, "y" * 30], 0))
    n, m = 16, 32
    by_hand = sum(abs(i - j) for i in range(n) for j in range(n)) / n
    by_hand += sum(abs(i - j) for i in range(m) for j in range(m)) / m
    assert found["uniform_distance"] == pytest.approx(by_hand / (n + m))
    for row in found["rows"]:
        assert row["distance"] == pytest.approx(found["uniform_distance"], rel=1e-5)
        assert row["entropy"] == pytest.approx((n * 4 + m * 5) / (n + m), rel=1e-5)
        assert row["cls"] == pytest.approx(2 / (n + m), rel=1e-5)


def test_mixtures_have_an_entropy_and_no_place(make_model: MakeModel) -> None:
    for projection in range(8, 20):  # as many mixtures as units, with padding or without, are still no units
        model = make_model(
            trunk={"attention": {"name": "linformer", "projection": projection, "max_units": 64}}
        )
        row = attention_distances(model, SampledTexts(["x" * 10], 0))["rows"][0]
        assert 0 < row["entropy"] <= torch.log2(torch.tensor(projection + 1e-4))
        assert all(row[name] is None for name in ("distance", "strongest", "itself", "cls", "sep"))
        assert set(row["strongest_counts"]) == {0}


def test_windows_keep_heads_near(make_model: MakeModel) -> None:
    model = make_model(
        trunk={"attention": {"name": "sliding_global", "one_sided_window": 1, "global_units": 0}}
    )
    for row in attention_distances(model, SampledTexts(["some words of text"], 0))["rows"]:
        assert 0.5 < row["distance"] < 0.75
