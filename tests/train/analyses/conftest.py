"""Small models that no training is needed for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tokenfree.core.settings import build, merge
from tokenfree.train.analyses.subject import AnalysedModel
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.encoder import ModelConfig

MakeModel = Callable[..., AnalysedModel]

CHARACTERS: dict[str, Any] = {
    "width": 32,
    "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 128, "positions": "none"},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
    "trunk": {"layers": 1, "heads": 4, "inner_width": 32},
}


@pytest.fixture
def make_model() -> MakeModel:
    """`make_model(trunk={...}, ...)`: a model of characters with fresh weights, where every character is a unit."""

    def make(*, length: int = 64, **changes: Any) -> AnalysedModel:
        torch.manual_seed(0)
        config = build(ModelConfig, merge(CHARACTERS, changes), source="test")
        return AnalysedModel("test", TextEncoder(config.build(), length=length))

    return make
