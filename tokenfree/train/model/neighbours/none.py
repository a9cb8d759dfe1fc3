"""No linear path: the scores of a head depend on the encoder alone."""

from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.model.common.slots import NeighboursConfig


@settings
class Config(NeighboursConfig):
    """No linear path, as in CANINE (Clark et al., arXiv 2103.06874)."""

    name: Literal["none"] = "none"

    def build(self, size: int) -> None:
        return None
