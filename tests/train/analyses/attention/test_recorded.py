"""The recorded weights are those that the pattern computes with, for all patterns."""

from typing import Any

import pytest
import torch

from tests.train.analyses.conftest import MakeModel
from tokenfree.train.analyses.attention import SeenLayer, observed_layers

TEXT = "one text of a few words, long enough for blocks"
PATTERNS: list[dict[str, Any]] = [
    {"attention": {"name": "full"}},
    {"attention": {"name": "full"}, "positions": {"name": "diet_abs", "max_units": 64}},
    {"attention": {"name": "full"}, "positions": {"name": "shaw", "clip": 4}},
    {"attention": {"name": "full"}, "positions": {"name": "tupe", "max_units": 64}},
    {"attention": {"name": "multi_scale", "scales": [1, 3, "N/16", "N/4"]}},
    {"attention": {"name": "multi_scale", "scales": [1, 3]}, "layer": {"name": "multi_scale"}},
    {"attention": {"name": "multi_scale", "scales": [3]}, "positions": {"name": "diet_rel", "max_units": 64}},
    {"attention": {"name": "sliding_global", "one_sided_window": 2, "global_units": 1}},
    {"attention": {"name": "sliding_global", "one_sided_window": 60, "global_units": 0}},
    {"attention": {"name": "sliding_global", "one_sided_window": 2, "separate_global_projections": True}},
    {"attention": {"name": "sliding_global", "one_sided_window": 2, "padding_queries": "zero"}},
    {"attention": {"name": "linformer", "projection": 5, "max_units": 64}},
]


@pytest.mark.parametrize("trunk", PATTERNS, ids=lambda trunk: str(list(trunk.items())))
def test_weights_average_the_values_to_what_the_pattern_gives(
    trunk: dict[str, Any], make_model: MakeModel
) -> None:
    model = make_model(trunk={"layers": 2, **trunk})
    with torch.no_grad():
        for parameter in model.encoder.trunk.parameters():
            parameter.normal_(std=0.3)
    found = []

    def see(layer: int, seen: SeenLayer) -> None:
        weights, n = seen.weights(), seen.units.count
        core, values = seen.core, seen.heads.values_BHKE[0]
        context = core.forward(seen.heads)[0][:, :n]
        rows = slice(0, n)
        if getattr(core, "separate", False):  # the global unit's values are projected apart
            rows = slice(1, n)
        values = values[:, : weights.shape[2]]
        torch.testing.assert_close((weights @ values)[:, rows], context[:, rows], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, n))
        found.append((layer, tuple(weights.shape)))

    with observed_layers(model.encoder, see):
        model.read(TEXT)
    num_keys = 5 if trunk["attention"]["name"] == "linformer" else len(TEXT) + 2
    assert found == [(layer, (4, len(TEXT) + 2, num_keys)) for layer in (0, 1)]
    model.read(TEXT)
    assert len(found) == 2, "nothing is watched any more"


@pytest.mark.parametrize("positions", ["none", "diet_abs", "diet_rel", "shaw", "t5", "tupe"])
def test_logits_are_those_of_the_weights(positions: str, make_model: MakeModel) -> None:
    limit = {"max_units": 64} if positions not in ("none", "shaw", "t5") else {}
    model = make_model(
        trunk={"layers": 2, "positions": {"name": positions, **limit}, "segments": {"name": "per_head"}}
    )
    with torch.no_grad():
        for parameter in model.encoder.trunk.parameters():
            parameter.normal_(std=0.3)

    def see(layer: int, seen: SeenLayer) -> None:
        bias = seen.bias()
        assert bias is not None
        torch.testing.assert_close((seen.content() + bias).softmax(dim=-1).float(), seen.weights())

    with observed_layers(model.encoder, see):
        model.read(TEXT)


def test_real_units_are_those_of_real_characters(make_model: MakeModel) -> None:
    """CANINE's mask says of one unit with real characters that it is none; and SEP is among other characters there."""
    strided = {
        "downsampler": {"name": "strided_conv", "rate": 4, "block": 16},
        "upsampler": {"name": "repeat_concat"},
    }
    counts = []
    for text in ("abcdefg", "abcdefgh", "a"):
        model = make_model(**strided)
        with observed_layers(model.encoder, lambda layer, seen: counts.append(seen.units)):
            model.read(text)
    # CLS and 7 characters and SEP are nine characters: three groups, and the unit of CLS.
    assert [units.count for units in counts] == [4, 4, 2]
    assert all(units.separator is None for units in counts)
