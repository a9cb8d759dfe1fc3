"""Pretrain token-free language encoders, from a raw Wikipedia dump to a trained model.

For users: `from tokenfree import load_encoder, load_finetuned, load_predictor, load_windows`. All are loaded when first
used, so that importing the package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenfree.train.data.loader import load_windows
    from tokenfree.train.inference.finetuned import load_finetuned
    from tokenfree.train.inference.predictor import load_predictor
    from tokenfree.train.inference.text_encoder import load_encoder

__all__ = ["load_encoder", "load_finetuned", "load_predictor", "load_windows"]

_HOMES = {
    "load_encoder": "tokenfree.train.inference.text_encoder",
    "load_finetuned": "tokenfree.train.inference.finetuned",
    "load_predictor": "tokenfree.train.inference.predictor",
    "load_windows": "tokenfree.train.data.loader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tokenfree' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
