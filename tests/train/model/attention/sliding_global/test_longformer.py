"""Layers of sliding windows with global units give the outputs of transformers.LongformerModel."""

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk


@pytest.mark.parametrize("windows", [[4, 4], [2, 16]])
def test_parity_with_longformer(windows: list[int]) -> None:
    """Theirs are the totals of both sides; global units are any marked ones, of differing numbers."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    theirs = transformers.LongformerModel(
        transformers.LongformerConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=99,
            max_position_embeddings=200, attention_window=[2 * window for window in windows], layer_norm_eps=1e-12,
            pad_token_id=1,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.3) if parameter.dim() > 1 else parameter.uniform_(-0.5, 1.5)
    attention = {
        "name": "sliding_global",
        "one_sided_window": windows,
        "global_units": 5,
        "separate_global_projections": True,
        "padding_queries": "zero",
    }
    mapping = {"layers": 2, "heads": 4, "activation": "gelu", "attention": attention}
    dimensions = Dimensions(width=16, heads=4, inner_width=24, dropout=0.0, activation="gelu")
    trunk = Trunk(build(TrunkConfig, mapping, source="test"), dimensions).eval()
    names = {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "core.query": "attention.self.query_global", "core.key": "attention.self.key_global",
        "core.value": "attention.self.value_global", "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm", "inner": "intermediate.dense", "outer": "output.dense",
        "norm": "output.LayerNorm",
    }  # fmt: skip
    for ours, other in zip(trunk.layers, theirs.encoder.layer, strict=True):
        for name, path in names.items():
            ours.get_submodule(name).load_state_dict(other.get_submodule(path).state_dict())

    lengths = torch.tensor([[120], [77], [9]])
    mask = torch.arange(120) < lengths
    ids = torch.randint(2, 99, mask.shape).masked_fill(~mask, 1)
    marked = (torch.rand(mask.shape) < 0.02) & (torch.arange(120) < 60)
    marked[:, 0] = True
    marked[0, [3, 50, 51]] = True
    marked &= (marked.cumsum(1) <= 5) & mask
    with torch.no_grad():
        embedded = theirs.embeddings(input_ids=ids)
        wanted = theirs(
            input_ids=ids, attention_mask=mask.long(), global_attention_mask=marked.long()
        ).last_hidden_state
        got = trunk(embedded, mask, None, marked)
    assert (got - wanted)[mask].abs().max() < 1e-5
