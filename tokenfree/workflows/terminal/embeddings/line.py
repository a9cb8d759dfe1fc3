"""The live line of the vectors of a corpus."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from tokenfree.workflows.terminal.live_line import LiveLine, clock
from tokenfree.workflows.terminal.stage_line import counted
from tokenfree.workflows.terminal.verbosity import Verbosity

if TYPE_CHECKING:
    from tokenfree.train.embeddings.folder import ShardRecord


class EmbeddingLine(LiveLine):
    """Shows the texts that stand as shards: how many, with how many characters, and how many of these a second."""

    separator = " · "

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        super().__init__(stream, verbosity=verbosity)
        self._start = time.monotonic()
        self._shards = self._texts = self._characters = self._made = 0

    def __call__(self, record: ShardRecord, made: bool) -> None:
        """Take a shard that was made now, or had been before."""
        seconds = time.monotonic() - self._start
        self._shards += 1
        self._texts += record.texts
        self._characters += record.characters
        self._made += record.characters if made else 0
        rate = [f"{self._made / seconds:,.0f} characters/s"] if self._made and seconds > 1 else []
        texts, shards = counted(self._texts, "text"), counted(self._shards, "shard")
        self.show(texts, shards, *rate, clock(int(seconds)), f"{self._characters:,} characters")
