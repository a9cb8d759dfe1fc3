"""Ranks of matrices whose rank is known, and the rank theorem of DIET on a model."""

import pytest
import torch

from tests.train.analyses.conftest import MakeModel
from tokenfree.train.analyses.attention import attention_ranks, ranks_of
from tokenfree.train.analyses.subject import SampledTexts

TEXT = SampledTexts(["forty units: as many letters and signs."[:38]], 0)


def test_matrices_of_known_rank() -> None:
    torch.manual_seed(0)
    low = torch.randn(30, 7) @ torch.randn(7, 30)  # computed in float32: noise of all ranks
    one = torch.outer(torch.arange(1.0, 31), torch.ones(30))
    nothing, unknown = torch.zeros(30, 30), torch.full((30, 30), torch.nan)
    matrices = torch.stack([torch.eye(30), low, one, nothing, unknown])
    numerical = ranks_of(matrices).tolist()
    assert numerical[:4] == [30, 7, 1, 0]
    assert numerical[4] != numerical[4]  # nan
    assert ranks_of(torch.randn(1, 5, 30)).item() == 5


def test_positions_in_the_heads_raise_the_rank(make_model: MakeModel) -> None:
    """The theorem's numbers: heads 8 wide and positions of rank 16 make 24, positions at the input 8."""
    model = make_model(trunk={"positions": {"name": "diet_abs", "rank": 16, "max_units": 64}})
    with torch.no_grad():
        for parameter in model.encoder.trunk.positions.parameters():
            parameter.normal_()
    found = attention_ranks(model, TEXT)
    assert found["units"] == 40
    for row in found["rows"]:
        assert row["rank_content"] == 8
        assert row["rank_positions"] == 16
        assert row["rank"] == 24
        assert row["toeplitz"] < 0.2
    at_input = make_model(embedder={"positions": "learned"})
    for row in attention_ranks(at_input, TEXT)["rows"]:
        assert row["rank"] == row["rank_content"] == 8
        assert row["rank_positions"] is row["toeplitz"] is None


def test_offsets_make_a_toeplitz_matrix_of_full_rank(make_model: MakeModel) -> None:
    model = make_model(
        trunk={"positions": {"name": "diet_rel", "max_units": 64}, "segments": {"name": "per_head"}}
    )
    with torch.no_grad():
        model.encoder.trunk.positions.by_offset_LHO.normal_()
    found = attention_ranks(model, TEXT)
    for row in found["rows"]:
        assert row["rank"] == 40
        assert row["rank_positions"] == 64 == found["units_of_positions"]
        assert row["toeplitz"] == pytest.approx(1)


def test_what_is_not_there_is_none(make_model: MakeModel) -> None:
    alone = make_model(
        trunk={"attention": {"name": "multi_scale", "scales": [1]}, "layer": {"name": "multi_scale"}}
    )
    # A stack of such heads alone keeps their logits; beside others they need none.
    some = make_model(
        trunk={"attention": {"name": "multi_scale", "scales": [1, 3]}, "layer": {"name": "multi_scale"}}
    )
    assert all(row["rank"] is not None for row in attention_ranks(alone, TEXT)["rows"])
    ranks = [row["rank"] for row in attention_ranks(some, TEXT)["rows"]]
    assert ranks[0] is None
    assert ranks[-1] == 8
    shaw = make_model(trunk={"positions": {"name": "shaw"}})
    assert all(row["rank_positions"] is None for row in attention_ranks(shaw, TEXT)["rows"])
    mixtures = make_model(trunk={"attention": {"name": "linformer", "projection": 5, "max_units": 64}})
    assert all(row["rank"] == 5 for row in attention_ranks(mixtures, TEXT)["rows"])
