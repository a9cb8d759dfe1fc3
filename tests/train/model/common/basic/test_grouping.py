"""Segments of units from those of characters, and marks of characters that reach units."""

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Grouping, any_of_units, unit_segments
from tokenfree.train.model.encoder import ModelConfig


def test_segment_of_the_first_character() -> None:
    grouping = Grouping(torch.tensor([[1, 1, 1, 2, 2, 3, 3, 3]]), None)
    segments = torch.tensor([[7, 0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0, 0, 1]])
    assert unit_segments(segments, grouping, 5).tolist() == [[7, 7, 0, 1, 7], [0, 0, 1, 0, 0]]


def test_each_example_may_have_its_own_groups() -> None:
    grouping = Grouping(torch.tensor([[0, 1, 1, 2], [0, 1, 2, 2]]), None)
    segments = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1]])
    assert unit_segments(segments, grouping, 3).tolist() == [[0, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_units_of_marked_characters(dtype: torch.dtype) -> None:
    marked = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 1]]).to(dtype)
    shared, own = torch.tensor([[1, 1, 1, 2, 3]]), torch.tensor([[1, 1, 1, 2, 3], [0, 1, 1, 3, 2]])
    found = [any_of_units(marked, Grouping(units), 4).long().tolist() for units in (shared, own)]
    assert found == [[[0, 1, 0, 0], [0, 0, 0, 1]], [[0, 1, 0, 0], [0, 0, 1, 0]]]


@pytest.mark.parametrize("down", ["strided_conv", "identity"])
def test_segments_of_characters_reach_the_stack(down: str) -> None:
    mapping = {
        "width": 16,
        "embedder": {"max_characters": 64, "segments": 0},
        "downsampler": down,
        "trunk": {"layers": 1, "heads": 2, "segments": "per_head"},
    }
    torch.manual_seed(0)
    encoder = build(ModelConfig, mapping, source="test").build().eval()
    torch.nn.init.normal_(encoder.trunk.segments.table_LHSS)
    codepoints, mask = torch.randint(32, 999, (1, 32)), torch.ones(1, 32, dtype=torch.bool)
    with torch.no_grad():
        one, other, none = (
            encoder(codepoints, mask, (torch.arange(32)[None] >= start).long()).pooled
            for start in (17, 18, 32)
        )
    assert not torch.equal(one, none)
    # Character 17 is the second of its group, whose first one decides.
    assert torch.equal(one, other) == (down == "strided_conv")
