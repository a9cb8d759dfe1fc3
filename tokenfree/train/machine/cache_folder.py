"""The folder of what can be had again: shards and runs copied from stores."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """Where everything is that can be had again."""
    return Path(os.environ.get("TOKENFREE_CACHE") or Path.home() / ".cache" / "tokenfree")
