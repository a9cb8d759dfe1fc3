"""What the input shows where a target is: MASK, something else, or the target itself."""

from __future__ import annotations

import numpy as np

MASKED, REPLACED, KEPT = range(3)  # of `target_kinds`


def target_kinds(masked: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The kind of each target, int64 of the shape of both: `masked`, bool, goes before `kept`, bool; else replaced."""
    return np.where(masked, MASKED, np.where(kept, KEPT, REPLACED)).astype(np.int64)
