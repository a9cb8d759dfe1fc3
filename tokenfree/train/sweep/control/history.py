"""What is known of a sweep's trials at one moment: a pure function of the events in its journal.

An event is a mapping, whose `event` says what happened:

    start      settings                      a command begins or goes on: nothing trains, and so many will be tried
    skip       values, reasons               a setting cannot be run
    propose    setting, values               a setting is taken up, with a trial for each seed
    exhausted                                the space holds no more settings that can be run
    begin      trial                         a segment of the trial begins
    report     trial, report, verdict        the trial reports; the verdict ends the segment unless it is `go`
    verdict    trial, verdict                the verdict on a trial that waited for others
    exploit    trial, donor, values, report  it took over the donor's checkpoints and goes on with these values
    failure    trial, error                  its segment failed

Older journals have no `start`, no `begin` and no `exhausted`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tokenfree.train.sweep.space.targets import LOSS, Target

Event = Mapping[str, Any]
Report = Mapping[str, Any]
Verdict = Literal["go", "wait", "stop", "exploit"]
MAX_FAILURES = 1  # a trial that fails is tried once more


@dataclass(frozen=True)
class TrialState:
    """One trial: a setting with one of its seeds, and what came of it so far.

    Attributes:
        name: `trial_003`; see `trial_name`.
        setting: the number of its setting, from 0.
        seed: added to the recipe's own seed.
        values: by dotted key.
        last_report: the number of the report that ends it.
        reports: all that it made, in order.
        verdict: on the last report; `go` before the first.
        running: whether a segment of it trains.
        failures: how often a segment failed.
        error: that of the last failure.
        exploited: the number of the report after which it last took over another trial's weights.
        target: the field of the reports that says how good it is.
    """

    name: str
    setting: int
    seed: int
    values: dict[str, Any]
    last_report: int
    reports: tuple[Report, ...] = ()
    verdict: Verdict = "go"
    running: bool = False
    failures: int = 0
    error: str = ""
    exploited: int = 0
    target: Target = LOSS

    @property
    def last(self) -> Report:
        """The last report; empty where there was none."""
        return self.reports[-1] if self.reports else {}

    @property
    def report_number(self) -> int:
        """The number of its last report, 0 before the first; all trials make equally many, evenly over the budget."""
        return self.last.get("report", 0)

    @property
    def state(self) -> str:
        """`finished`, `stopped` (early, by the scheduler), `failed`, `running` (also between segments) or `waiting`."""
        if self.failures > MAX_FAILURES:
            return "failed"
        if self.reports and self.report_number >= self.last_report:
            return "finished"
        if self.verdict == "stop":
            return "stopped"
        return "running" if self.running or self.reports else "waiting"

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state in ("finished", "stopped", "failed")

    def loss_at(self, report_number: int) -> float | None:
        """What its first report of this number or a later one says of its quality; infinite where it is no number.

        That is the validation loss or, of a task, the score; less is better.
        """
        for report in self.reports:
            if report["report"] >= report_number:
                loss = self.target.cost(report[self.target.metric])
                return loss if math.isfinite(loss) else math.inf
        return None

    def after(self, event: Event) -> "TrialState":
        """The trial after an event of its own.

        Raises:
            ValueError: there is no such event.
        """
        match event["event"]:
            case "begin":
                return dataclasses.replace(self, running=True)
            case "report":
                new = dataclasses.replace(self, reports=(*self.reports, event["report"]), verdict=event["verdict"])
                return dataclasses.replace(new, running=self.running and new.verdict == "go" and not new.ended)
            case "verdict":
                return dataclasses.replace(self, verdict=event["verdict"])
            case "exploit":
                return dataclasses.replace(self, values=event["values"], exploited=event["report"])
            case "failure":
                return dataclasses.replace(self, failures=self.failures + 1, error=event["error"], running=False)
        raise ValueError(f"no event of a trial: {event}")


@dataclass(frozen=True)
class History:
    """What is known of a sweep: its trials by name, in the order in which they were proposed, and its settings.

    Attributes:
        seeds: trials of each setting.
        reports: of a trial that comes to its end.
        target: the field of the reports that says how good a trial is.
        num_settings: that are to be tried, if the space holds so many; 0 where no command has said it yet.
        trials: by name.
        proposed: the values of each setting as the searcher gave them; a trial may have taken over others since.
        skipped: the settings that cannot be run, and why.
        exhausted: whether the space holds no more settings.
    """

    seeds: int
    reports: int
    target: Target = LOSS
    num_settings: int = 0
    trials: Mapping[str, TrialState] = dataclasses.field(default_factory=dict)
    proposed: tuple[dict[str, Any], ...] = ()
    skipped: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = ()
    exhausted: bool = False

    @property
    def total(self) -> int:
        """How many trials there will be."""
        return len(self.trials) if self.exhausted else self.num_settings * self.seeds

    @property
    def all_proposed(self) -> bool:
        """Whether no more trials are to come."""
        return len(self.trials) >= self.total

    @property
    def all_ended(self) -> bool:
        """Whether every trial has ended and no more are to come."""
        return self.all_proposed and all(trial.ended for trial in self.trials.values())

    def settings(self) -> dict[int, list[TrialState]]:
        """The trials of each setting that was proposed."""
        groups: dict[int, list[TrialState]] = {}
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

    def after(self, event: Event) -> "History":
        """What is known after an event.

        Raises:
            ValueError: there is no such event.
        """
        match event["event"]:
            case "start":
                idle = {name: dataclasses.replace(trial, running=False) for name, trial in self.trials.items()}
                return dataclasses.replace(self, num_settings=event["settings"], trials=idle)
            case "skip":
                return dataclasses.replace(self, skipped=(*self.skipped, (event["values"], tuple(event["reasons"]))))
            case "propose":
                new = {trial.name: trial for trial in self._trials_of(event["setting"], event["values"])}
                proposed = (*self.proposed, event["values"])
                return dataclasses.replace(self, trials={**self.trials, **new}, proposed=proposed)
            case "exhausted":
                return dataclasses.replace(self, exhausted=True)
        if "trial" not in event:
            raise ValueError(f"no event of a sweep: {event}")
        trial = self.trials[event["trial"]].after(event)
        return dataclasses.replace(self, trials={**self.trials, trial.name: trial})

    def _trials_of(self, setting: int, values: dict[str, Any]) -> list[TrialState]:
        names = [trial_name(setting, seed, self.seeds) for seed in range(self.seeds)]
        return [
            TrialState(name, setting, seed, values, self.reports, target=self.target) for seed, name in enumerate(names)
        ]


def trial_name(setting: int, seed: int, seeds: int) -> str:
    """`trial_003`, or `trial_003_seed_1` where settings have several seeds."""
    return f"trial_{setting:03d}" + (f"_seed_{seed}" if seeds > 1 else "")


class Exploit(NamedTuple):
    """A trial is to take over the weights of another one, and go on with other values.

    Attributes:
        trial: its name.
        donor: the name of the other one.
        values: what it goes on with, by dotted key.
        report_number: the number of the report after which it does.
    """

    trial: str
    donor: str
    values: dict[str, Any]
    report_number: int
