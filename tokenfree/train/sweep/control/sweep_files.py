"""What stands in the files of a sweep that are read back, and what to do about a damaged one; see `StoredFile`.

All that is checked here is what some reader counts on. The tables of a sweep are made anew from its journal, and never
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import NotRequired, TypedDict

from tokenfree.core.stored_files import OPEN, StoredFile
from tokenfree.train.runs.config import SWEEP_FORMAT, Attempt, Count, Format, Number
from tokenfree.train.sweep.control.history import Event, Verdict
from tokenfree.train.sweep.space.targets import Objective

RAY = "ray"  # the folder of what Ray writes, never read again
AtLeastOne = Annotated[int, Field(ge=1)]


class _Fingerprints(TypedDict):
    sweep: str
    data: str


@with_config(OPEN)
class _Knob(TypedDict, total=False):
    choice: list[Any] | None
    grid: list[Any] | None
    uniform: list[Number] | None
    log_uniform: list[Number] | None
    integer: list[int] | None


@with_config(OPEN)
class _Recipe(TypedDict, total=False):
    space: dict[str, _Knob] | None
    objectives: Annotated[list[Objective], Field(min_length=1)] | None
    budget: dict[str, Number | None] | None
    seeds: AtLeastOne
    reports: AtLeastOne


@with_config(OPEN)
class _Sweep(TypedDict):
    format: NotRequired[Format]
    fingerprints: NotRequired[_Fingerprints]
    recipe: _Recipe
    attempts: NotRequired[list[Attempt] | None]


@with_config(OPEN)
class _Report(TypedDict):
    report: AtLeastOne
    validation_loss: float  # of trials that failed by it in earlier versions, no number
    step: NotRequired[Count]
    validation_accuracy: NotRequired[float]
    characters: NotRequired[Number]
    flops: NotRequired[Number]
    train_seconds: NotRequired[Number]
    characters_per_second: NotRequired[Number]
    parameters: NotRequired[Count]
    dev_score: NotRequired[Number]
    dev_error: NotRequired[Number]


class _Start(TypedDict):
    event: Literal["start"]
    settings: Count


class _Skip(TypedDict):
    event: Literal["skip"]
    values: dict[str, Any]
    reasons: list[str]


class _Propose(TypedDict):
    event: Literal["propose"]
    setting: Count
    values: dict[str, Any]


class _Exhausted(TypedDict):
    event: Literal["exhausted"]


class _Begin(TypedDict):
    event: Literal["begin"]
    trial: str


class _Reported(TypedDict):
    event: Literal["report"]
    trial: str
    report: _Report
    verdict: Verdict


class _Decided(TypedDict):
    event: Literal["verdict"]
    trial: str
    verdict: Verdict


class _TookOver(TypedDict):
    event: Literal["exploit"]
    trial: str
    donor: str
    values: dict[str, Any]
    report: Count


class _Failed(TypedDict):
    event: Literal["failure"]
    trial: str
    error: str


_Event = Annotated[
    _Start | _Skip | _Propose | _Exhausted | _Begin | _Reported | _Decided | _TookOver | _Failed,
    Field(discriminator="event"),
]


@with_config(OPEN)
class _Seeds(TypedDict):
    mean: Number
    interval: Number | None
    seeds: Annotated[list[Number], Field(min_length=1)]


@with_config(OPEN)
class _Setting(TypedDict):
    setting: Count
    values: dict[str, Any]
    dev: _Seeds | None
    test: _Seeds | None


@with_config(OPEN)
class _Best(TypedDict):
    setting: Count
    trials: list[str]


@with_config(OPEN)
class _Scores(TypedDict):
    metric: str
    best: _Best
    dev: dict[str, Number]
    test: NotRequired[dict[str, Number]]
    settings: Annotated[list[_Setting], Field(min_length=1)]


SCORES = "result.json"  # of a task: the scores of all settings
_REMEDY = "put a copy of it back, or begin the sweep again with another --output"
SWEEP_FILE: StoredFile[Mapping[str, Any]] = StoredFile(_Sweep, _REMEDY, SWEEP_FORMAT)
EVENT_LINE: StoredFile[Event] = StoredFile(_Event, _REMEDY)
SCORES_FILE: StoredFile[Mapping[str, Any]] = StoredFile(_Scores, _REMEDY)
BEST_FILE: StoredFile[Mapping[str, Any]] = StoredFile(
    dict[str, Any], "give the command of the sweep again, which writes it anew"
)
