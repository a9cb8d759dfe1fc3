"""The commit mark of a checkpoint: the hash of its state.json, which holds those of its other files; written last."""

from __future__ import annotations

import hashlib

MARK, STATE = "COMMIT", "state.json"


def mark_of(state: bytes) -> bytes:
    """The content of the mark beside a state.json of this content; any other is damage."""
    return hashlib.sha256(state).hexdigest().encode() + b"\n"
