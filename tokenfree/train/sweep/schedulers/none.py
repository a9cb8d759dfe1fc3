"""Every trial uses its whole budget."""

from typing import Literal

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler


@settings
class Config(Scheduler):
    """Every trial uses its whole budget, whatever it reports: the plain search that the others save time over.

    Attributes:
        name: `none`.
    """

    name: Literal["none"] = "none"

    def stops_early(self) -> bool:
        """No."""
        return False

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`go`."""
        return "go"
