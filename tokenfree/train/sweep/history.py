"""The record of a sweep: a journal with one event per line, and the state of the trials after these events.

Ray Tune saves its own state rarely and without the reports, so a sweep resumes from the journal, and its
table, files and page are made from it. The `event` of an event names what happened; `_FIELDS` lists its other
fields. The last field of a line is its `checksum`.
"""

import bisect
import dataclasses
import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Self, TypeGuard, Union

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.stored_files import OPEN, StoredFile, checked
from tokenfree.train.runs.formats import SWEEP_FORMAT, Attempt, Count, Format, Number
from tokenfree.train.sweep.recipe import LOSS, Metric, Objective, Values

Event = Mapping[str, Any]
Report = Mapping[str, Any]
Verdict = Literal["go", "stop"]
JOURNAL = "journal.jsonl"
TABLE = "sweep.csv"  # written last: if it exists, the sweep has ended
RAY = "ray"  # the folder that Ray writes to, removed at the end
SCORES = "result.json"  # of a task: the scores of all settings
# A failed trial is tried once more.
MAX_FAILURES = 1


def is_number(value: Any) -> TypeGuard[float]:
    """Return True if the value is a finite number. A loss may be NaN, and a field may be missing."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class TrialState:
    """One trial, which is a setting with one of its seeds, and its results so far.

    Attributes:
        seed: Number added to the recipe's own seed.
        last_report: Number of the report that ends the trial.
        verdict: Decision on the last report; `go` before the first.
        running: Whether it trains, or waits under Ray Tune.
        error: Message of its last failure, until it starts again.
    """

    name: str
    setting: int
    seed: int
    values: Values
    last_report: int
    reports: tuple[Report, ...] = ()
    verdict: Verdict = "go"
    running: bool = False
    failures: int = 0
    error: str = ""
    target: Metric = LOSS

    @property
    def last(self) -> Report:
        return self.reports[-1] if self.reports else {}

    @property
    def report_number(self) -> int:
        """Number of the last report, 0 before the first.

        All trials make the same number, evenly over the budget.
        """
        return self.last.get("report", 0)

    def value_at(self, metric: str, amount: float, unit: str = "step") -> float | None:
        """Return `metric` where `amount` of `unit` was used, interpolated linearly; None outside the reports."""
        points = [(report.get(unit), report.get(metric)) for report in self.reports]
        points = [(float(x), float(y)) for x, y in points if is_number(x) and is_number(y)]
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x0 <= amount < x1:
                return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)
        return points[-1][1] if points and points[-1][0] == amount else None

    @property
    def state(self) -> str:
        """`finished`, `stopped` (early, by the scheduler), `failed`, `running` (also between commands) or `waiting`."""
        if self.failures > MAX_FAILURES:
            return "failed"
        if self.reports and self.report_number >= self.last_report:
            return "finished"
        if self.verdict == "stop":
            return "stopped"
        return "running" if self.running or self.reports else "waiting"

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "stopped", "failed")

    def order(self) -> tuple[bool, int, float, str]:
        """Return the sort key by progress and result, best first, failed trials last."""
        value = self.last.get(self.target.metric)
        cost = self.target.cost(value) if is_number(value) else math.inf
        return self.state == "failed", -self.report_number, cost, self.name

    def after(self, event: Event) -> Self:
        match event["event"]:
            case "begin":
                return dataclasses.replace(self, running=True, error="")
            case "failure":
                return dataclasses.replace(
                    self, failures=self.failures + 1, error=event["error"], running=False
                )
            case "stop":
                return dataclasses.replace(self, verdict="stop", running=False)
        new = dataclasses.replace(self, reports=(*self.reports, event["report"]), verdict=event["verdict"])
        return dataclasses.replace(new, running=self.running and not new.ended)


@dataclass
class History:
    """State of a sweep: its settings, and its trials by name in the order in which they were proposed.

    The work of recording an event does not depend on the number of trials.

    Attributes:
        seeds: Number of trials of each setting.
        reports: Number of reports of a trial that is not stopped.
        num_settings: Number of settings to try; 0 before a command has recorded it.
        unfinished: Trials that have not ended, by name. They are few, because a setting is proposed only when a
            trial can start.
        ended: Trials that have ended, best first: by progress and result, failed ones last.
        skipped: Settings that cannot be run, with the reasons.
        exhausted: Whether the search space has no more settings.
    """

    seeds: int
    reports: int
    target: Metric = LOSS
    num_settings: int = 0
    trials: dict[str, TrialState] = dataclasses.field(default_factory=dict)
    unfinished: dict[str, TrialState] = dataclasses.field(default_factory=dict)
    ended: list[TrialState] = dataclasses.field(default_factory=list)
    proposed: list[Values] = dataclasses.field(default_factory=list)
    skipped: list[tuple[Values, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    exhausted: bool = False

    @property
    def total(self) -> int:
        return len(self.trials) if self.exhausted else self.num_settings * self.seeds

    @property
    def all_proposed(self) -> bool:
        return len(self.trials) >= self.total

    @property
    def all_ended(self) -> bool:
        return self.all_proposed and not self.unfinished

    def reasons(self) -> dict[str, int]:
        """Return the number of skipped settings by reason."""
        return dict(Counter(reason for _, reasons in self.skipped for reason in reasons))

    def record(self, event: Event) -> None:
        """Change the state to that after an event."""
        match event["event"]:
            case "start":
                self.num_settings = event["settings"]
                for trial in list(self.unfinished.values()):
                    self._put(dataclasses.replace(trial, running=False))
            case "skip":
                self.skipped.append((event["values"], tuple(event["reasons"])))
            case "propose":
                setting, values = event["setting"], event["values"]
                self.proposed.append(values)
                for seed in range(self.seeds):
                    name = f"trial_{setting:03d}" + (f"_seed_{seed}" if self.seeds > 1 else "")
                    self._put(TrialState(name, setting, seed, values, self.reports, target=self.target))
            case "exhausted":
                self.exhausted = True
            case _:
                self._put(self.trials[event["trial"]].after(event))

    def _put(self, trial: TrialState) -> None:
        previous = self.trials.get(trial.name)
        if previous is not None and previous.ended:
            self.ended.remove(previous)
        self.trials[trial.name] = self.unfinished[trial.name] = trial
        if trial.ended:
            del self.unfinished[trial.name]
            bisect.insort(self.ended, trial, key=TrialState.order)


def by_setting(trials: Iterable[TrialState]) -> dict[int, list[TrialState]]:
    groups: dict[int, list[TrialState]] = {}
    for trial in trials:
        groups.setdefault(trial.setting, []).append(trial)
    return groups


def journal_line(event: Event) -> bytes:
    text = json.dumps(event)
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return json.dumps({**event, "checksum": checksum}).encode() + b"\n"


def _parsed(line: bytes) -> Event | None:
    """Return the event of a line of the journal, or None if any bit of the line has changed."""
    try:
        event = json.loads(line)
        del event["checksum"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return event if journal_line(event) == line else None


def _events(folder: Path) -> Iterator[tuple[str, Event]]:
    """Yield the place and the event of each line of a journal, without an incomplete last line, as a kill leaves it."""
    path = folder / JOURNAL
    *lines, torn = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    # Its line end has changed.
    if _parsed(torn[:-1] + b"\n") is not None:
        lines.append(torn)
    for number, line in enumerate(lines, 1):
        place, event = f"{path}: line {number}", _parsed(line + b"\n")
        if event is None:
            raise JobError(f"{place}: damaged, it does not match its checksum; {_ACTION}")
        try:
            yield place, checked(_Event, event)
        except ValueError as error:
            raise JobError(f"{place}: damaged, {error}; {_ACTION}") from None


def read_history(folder: Path, *, seeds: int, reports: int, target: Metric = LOSS) -> History:
    """Return the state of the sweep in `folder`. Raises JobError, naming the line, if its journal is damaged.

    Raises UserError if the sweep has ended and its journal is missing.
    """
    if (folder / TABLE).is_file() and not (folder / JOURNAL).is_file():
        raise UserError(
            f"{folder}: {JOURNAL} is gone, from which a sweep is read; put it back beside {TABLE}"
        )
    history = History(seeds, reports, target)
    for place, event in _events(folder):
        if "trial" in event and event["trial"] not in history.trials:
            raise JobError(f"{place}: damaged, no line before it proposes {event['trial']!r}; {_ACTION}")
        history.record(event)
    return history


# Fields of the files that are read back, as far as a reader relies on them.
_AtLeastOne = Annotated[int, Field(ge=1)]


@with_config(OPEN)
class _Recipe(TypedDict, total=False):
    objectives: Annotated[list[Objective], Field(min_length=1)] | None
    budget: dict[str, Number | None] | None
    seeds: _AtLeastOne
    reports: _AtLeastOne


@with_config(OPEN)
class _Sweep(TypedDict):
    format: Format
    fingerprints: NotRequired[dict[Literal["sweep", "data"], str]]
    recipe: _Recipe
    # Of the command's options; `overrides` are those of the recipe as given.
    inputs: NotRequired[dict[str, Any]]
    attempts: NotRequired[list[Attempt] | None]


@with_config(OPEN)
class _Report(TypedDict):
    report: _AtLeastOne
    validation_loss: float
    step: NotRequired[Count]
    validation_accuracy: NotRequired[float]
    characters: NotRequired[Number]
    flops: NotRequired[Number]
    train_seconds: NotRequired[Number]
    characters_per_second: NotRequired[Number]
    parameters: NotRequired[Count]
    dev_score: NotRequired[Number]
    dev_error: NotRequired[Number]


_FIELDS: Mapping[str, Mapping[str, Any]] = {
    # A command starts or resumes the sweep, and nothing trains yet. `settings` is the number of settings to
    # try.
    "start": {"settings": Count},
    # A setting cannot be run.
    "skip": {"values": dict[str, Any], "reasons": list[str]},
    # A setting is chosen, with a trial for each seed.
    "propose": {"setting": Count, "values": dict[str, Any]},
    # The search space has no more settings that can be run.
    "exhausted": {},
    # The trial starts or resumes.
    "begin": {"trial": str},
    # The trial reports. It continues unless the verdict is `stop`.
    "report": {"trial": str, "report": _Report, "verdict": Verdict},
    # The scheduler stops a trial that waits.
    "stop": {"trial": str},
    "failure": {"trial": str, "error": str},
}
_EVENTS = tuple(TypedDict(name, {"event": Literal[name], **fields}) for name, fields in _FIELDS.items())  # pyright: ignore
_Event = Annotated[Union[_EVENTS], Field(discriminator="event")]  # noqa: UP007  # pyright: ignore


@with_config(OPEN)
class _Best(TypedDict):
    trials: list[str]


@with_config(OPEN)
class _Scores(TypedDict):
    best: _Best
    dev: dict[str, Number]
    test: NotRequired[dict[str, Number]]
    baseline: NotRequired[dict[str, dict[str, dict[str, Number]]]]
    baseline_lines: NotRequired[dict[str, tuple[Count, Count]]]


_ACTION = "put a copy of it back, or begin the sweep again with another --output"
SWEEP_FILE: StoredFile[Mapping[str, Any]] = StoredFile(_Sweep, _ACTION, SWEEP_FORMAT)
SCORES_FILE: StoredFile[Mapping[str, Any]] = StoredFile(_Scores, _ACTION)
