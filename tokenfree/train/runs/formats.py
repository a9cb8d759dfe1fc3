"""The formats of the files of a run that are read back.

Only the keys that some code depends on are checked. Other keys are for people.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tokenfree.core.stored_files import OPEN, StoredFile

CONFIG_NAME, RESULT_NAME, METRICS_NAME, EVENTS_NAME = (
    "config.yaml",
    "result.json",
    "metrics.jsonl",
    "events.jsonl",
)
Number = int | Annotated[float, Field(allow_inf_nan=False)]
AtLeastTwo = Annotated[list[str], Field(min_length=2)]  # data directories as on the command line
# Increased when earlier versions cannot read the folder.
RUN_FORMAT, SWEEP_FORMAT = 1, 1
Format = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
# Since 1970; Python has no dates after the year 9999.
Seconds = Annotated[float, Field(ge=0, lt=1e11)]


@with_config(OPEN)
class Machine(TypedDict, total=False):
    cores: int
    memory_gib: Number
    accelerators: list[str]
    system: str
    python: str


@with_config(OPEN)
class Attempt(TypedDict, total=False):
    time: str | None
    command: str | None
    commit: str | None
    machine: Machine | None
    packages: dict[str, str] | None


class _Weights(TypedDict):
    path: str
    sha256: str


@with_config(OPEN)
class _Train(TypedDict, total=False):
    steps: Count | None
    length: Count | None


@with_config(OPEN)
class _Recipe(TypedDict, total=False):
    train: _Train


@with_config(OPEN)
class _Config(TypedDict):
    format: NotRequired[Format]
    recipe: NotRequired[_Recipe]
    data: NotRequired[str | AtLeastTwo]
    manifest: NotRequired[str]
    init_from: NotRequired[_Weights]
    files: NotRequired[dict[str, str]]
    code: NotRequired[dict[str, str]]
    attempts: NotRequired[list[Attempt] | None]


@with_config(OPEN)
class _WholeConfig(_Config):
    format: Format
    recipe: _Recipe
    data: str | AtLeastTwo
    manifest: str


@with_config(OPEN)
class _Result(TypedDict, total=False):
    steps: Count
    loss: Number
    validation_loss: Number
    validation_accuracy: Number
    validation_targets: Count
    validation_means: dict[str, Number]
    symbol: str | None
    clue: str | None
    baselines: dict[str, Number] | None
    unigram_entropy: Number | None
    unigram_cross_entropy: Number | None
    best_step: Count | None
    characters: Count
    seconds: Number
    checkpoint: str
    baseline: dict[str, dict[str, dict[str, Number]]]
    baseline_lines: dict[str, tuple[Count, Count]]
    only_label: dict[str, str | Number]


@with_config(OPEN)
class _Metrics(TypedDict):
    step: Count
    loss: NotRequired[Number]
    characters: NotRequired[Number]
    seconds: NotRequired[Number]
    learning_rate: NotRequired[Number]
    validation_loss: NotRequired[Number]
    validation_accuracy: NotRequired[Number]
    validation_masked_only_loss: NotRequired[Number]
    validation_main: NotRequired[Number]


@with_config(OPEN)
class _Event(TypedDict):
    event: str
    step: NotRequired[Count | None]
    time: NotRequired[Seconds | None]
    workers: NotRequired[Count | None]
    machine: NotRequired[Machine | None]
    tracker: NotRequired[str]
    id: NotRequired[str | None]


@with_config(OPEN)
class _Incident(TypedDict):
    checkpoint: Count | None
    left_out: list[Count]


_CONFIG_ACTION = "put a copy of it back, or give another run"


_LINE_ACTION = "remove this line from it"
CONFIG: StoredFile[Mapping[str, Any]] = StoredFile(_WholeConfig, _CONFIG_ACTION, RUN_FORMAT)
# Lenient, for reports.
REPORT_CONFIG: StoredFile[Mapping[str, Any]] = StoredFile(_Config, _CONFIG_ACTION, RUN_FORMAT)
RESULT: StoredFile[dict[str, Any]] = StoredFile(
    _Result, "remove it and give the command that trained the run again, which writes it again"
)
METRICS: StoredFile[dict[str, Any]] = StoredFile(_Metrics, _LINE_ACTION)
EVENTS: StoredFile[dict[str, Any]] = StoredFile(_Event, _LINE_ACTION)
INCIDENT: StoredFile[dict[str, Any]] = StoredFile(
    _Incident, "put a copy of it back, or begin the run again with another --output"
)


def main_baselines(result: Mapping[str, Any], split: str) -> dict[str, float]:
    """Return the main score of each baseline on a split, given the content of a result.json."""
    main = next(iter(result.get(split) or ()), "")
    baselines = (result.get("baseline") or {}).get(split) or {}
    return {name: scores[main] for name, scores in baselines.items() if main in scores}
