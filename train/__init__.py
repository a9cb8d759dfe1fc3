"""Models, objectives, data order, training loop, Ray Train and Ray Tune.

For users: `from train import load_encoder, load_windows`. Both are loaded when first used, so that importing the
package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train.data.windows import load_windows
    from train.inference import load_encoder

__all__ = ["load_encoder", "load_windows"]

_HOMES = {"load_encoder": "train.inference", "load_windows": "train.data.windows"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'train' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
