"""What is known of a sweep's trials at one moment: a pure function of the events in its journal."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["go", "wait", "stop"]
Event = Mapping[str, Any]
MAX_FAILURES = 1  # a trial that fails is tried once more


@dataclass
class Record:
    """One trial: a setting with one of its seeds, and what came of it so far."""

    name: str
    setting: int
    seed: int  # added to the recipe's own
    values: dict[str, Any]
    reports: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict = "go"  # on the last report
    failures: int = 0
    error: str = ""  # of the last failure
    exploited: int = 0  # the number of the report after which it last took over another trial's weights
    last_report: int = 0  # the number of the report that ends it

    @property
    def place(self) -> int:
        """The number of its last report, 0 before the first; all trials make equally many, evenly over the budget."""
        return self.reports[-1]["report"] if self.reports else 0

    @property
    def state(self) -> str:
        """`finished`, `stopped` (early, by the scheduler), `failed`, or `running` for what has not ended."""
        if self.failures > MAX_FAILURES:
            return "failed"
        if self.reports and self.place >= self.last_report:
            return "finished"
        return "stopped" if self.verdict == "stop" else "running"

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state != "running"

    def loss_at(self, place: int) -> float | None:
        """The validation loss of its first report numbered `place` or later; infinite where it is not a number."""
        for report in self.reports:
            if report["report"] >= place:
                loss = report["validation_loss"]
                return loss if math.isfinite(loss) else math.inf
        return None


class History:
    """The trials of a sweep by name, in the order in which they were proposed."""

    def __init__(self, *, settings: int, seeds: int, reports: int, events: Iterable[Event] = ()) -> None:
        self.seeds, self.reports = seeds, reports
        self.total = settings * seeds  # trials that there will be
        self.trials: dict[str, Record] = {}
        self.proposed: list[dict[str, Any]] = []  # the values of each setting as the searcher gave them
        self.skipped: list[tuple[dict[str, Any], tuple[str, ...]]] = []  # settings that cannot work, and why
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Take in one event: `propose`, `skip`, `report`, `verdict`, `failure` or `exploit`."""
        kind = event["event"]
        if kind == "propose":
            self.proposed.append(event["values"])
            for seed in range(self.seeds):
                name = trial_name(event["setting"], seed, self.seeds)
                self.trials[name] = Record(
                    name, event["setting"], seed, dict(event["values"]), last_report=self.reports
                )
        elif kind == "skip":
            self.skipped.append((event["values"], tuple(event["reasons"])))
        elif kind == "report":
            trial = self.trials[event["trial"]]
            trial.reports.append(event["report"])
            trial.verdict = event["verdict"]
        elif kind == "verdict":
            self.trials[event["trial"]].verdict = event["verdict"]
        elif kind == "failure":
            trial = self.trials[event["trial"]]
            trial.failures += 1
            trial.error = event["error"]
        elif kind == "exploit":
            trial = self.trials[event["trial"]]
            trial.values, trial.exploited = dict(event["values"]), event["report"]

    def settings(self) -> dict[int, list[Record]]:
        """The trials of each setting that was proposed."""
        groups: dict[int, list[Record]] = {}
        for trial in self.trials.values():
            groups.setdefault(trial.setting, []).append(trial)
        return groups

    def reasons(self) -> dict[str, int]:
        """How many settings were skipped, by reason."""
        counts: dict[str, int] = {}
        for _, reasons in self.skipped:
            for reason in reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return counts


def trial_name(setting: int, seed: int, seeds: int) -> str:
    """`trial_003`, or `trial_003_seed_1` where settings have several seeds."""
    return f"trial_{setting:03d}" + (f"_seed_{seed}" if seeds > 1 else "")
