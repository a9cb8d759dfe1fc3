"""The two slots of a sweep: what its searcher and its scheduler can be asked. Their variants inherit the defaults."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

from tokenfree.core.settings import Contract
from tokenfree.train.sweep.control.history import Exploit, History, Report, TrialState, Verdict
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe


class Searcher(Protocol):
    """Chooses the settings that are tried. A variant is the `Config` of a file in `train/sweep/searchers/`.

    It keeps no state: what it gives is a function of the sweep and its history, so a killed sweep goes on with the same
    settings.
    """

    name: str

    def problems(self, sweep: SweepRecipe) -> Iterable[str]:
        """What in `sweep` does not go with this searcher, one line each; nothing by default."""
        return ()

    def is_finite(self) -> bool:
        """Whether it goes through a list that ends, all of which is tried unless the sweep says how many; no."""
        return False

    def foreseen(self, wanted: int) -> int:
        """How many of `wanted` settings do not depend on what trials report; all of them by default."""
        return wanted

    @abstractmethod
    def candidates(self, sweep: SweepRecipe, history: History) -> Iterator[Values]:
        """Settings in the order in which they would be tried, repeats and impossible ones included.

        Each gives values by dotted key, and leaves out knobs that play no part. The first that is new and can be run is
        the next setting.
        """
        ...


class Scheduler(Protocol):
    """Says which trials go on. A variant is the `Config` of a file in `train/sweep/schedulers/`.

    It keeps no state: a verdict is a pure function of its arguments, so a killed sweep goes on with the rungs, brackets
    and generations that it had.
    """

    name: str

    def problems(self, sweep: SweepRecipe) -> Iterable[str]:
        """What in `sweep` does not go with this scheduler, one line each; nothing by default."""
        return ()

    def stops_early(self) -> bool:
        """Whether it may end a trial before its budget is used up; yes by default."""
        return True

    def least_reports(self, reports: int) -> int:
        """How many of its `reports` a trial makes at least; 1 by default, and all where nothing stops early."""
        return 1 if self.stops_early() else reports

    @abstractmethod
    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """What becomes of `trial` after `report`, its last one, which does not end it.

        Args:
            history: all that is known, this report included.
            trial: that made the report, as it is in `history`.
            report: with its number as `report`, counted from 1, and `validation_loss` in nats.

        Returns:
            `go` on, `stop`, `wait` for others and ask again when more is known, or `exploit` (see below).
        """
        ...

    def exploit(self, sweep: SweepRecipe, history: History, trial: TrialState) -> Exploit:
        """What a trial with the verdict `exploit` takes over before it goes on; asked only after that verdict."""
        raise AssertionError(f"the scheduler {self.name} gives no such verdict")


SEARCHER = Contract(Searcher, Searcher)
SCHEDULER = Contract(Scheduler, Scheduler)
