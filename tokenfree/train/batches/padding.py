"""Padding of texts, such that embeddings depend neither on other texts of the batch nor on the amount of padding."""

from collections.abc import Iterable

from tokenfree.train.model.common.basic import round_up
from tokenfree.train.model.encoder import ModelConfig, check


class Padding:
    """The lengths of inputs for a model of characters, bytes or subwords, up to the length of its training.

    Inputs are padded by at least `spare` positions, to whole groups of `group` positions. UP reads `reach`
    positions ahead. If these enter a block of local attention (`block` positions) that holds only padding,
    inputs are padded to the end of that block. If there is room, lengths are multiples of `bucket`, so that
    there are few different ones.
    """

    def __init__(self, config: ModelConfig, length: int, *, bucket: int = 1) -> None:
        self._config, self._bucket = config, bucket
        self.group: int = config.downsampler.rate
        self.length = length - length % self.group
        self.reach = max(2, getattr(config.upsampler, "kernel", 0) // 2)
        self.spare = max(self.group + self.reach, 6)
        self.block: int | None = getattr(config.downsampler, "block", None)
        # By the shortest length: the first one that the model's parts accept.
        self._accepted: dict[int, int] = {}

    def padded(self, positions: Iterable[int]) -> int:
        """Return the shortest length for inputs of `positions` at which more padding would not change their outputs."""
        shortest = max(self._min_length(count) for count in set(positions))
        if shortest not in self._accepted:
            lengths = range(shortest, self.length + 1, self.group)
            last = self.length - self._bucket
            candidates = (length for length in lengths if length % self._bucket == 0 or length > last)
            self._accepted[shortest] = next(
                length for length in candidates if not check(self._config, length)
            )
        return self._accepted[shortest]

    def _min_length(self, positions: int) -> int:
        length = round_up(positions + self.spare, self.group)
        if self.block is None:
            return length
        # Up to the end of the last unit that UP reads.
        read = round_up(positions + self.reach, self.group)
        if (read - 1) // self.block > (positions - 1) // self.block:
            length = max(length, round_up(round_up(read, self.block), self.group))
        return min(length, self.length)
