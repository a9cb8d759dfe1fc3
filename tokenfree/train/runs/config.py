"""The config of a run, and the formats of its other files that are read back.

Only the keys that some code depends on are checked. Other keys are for people.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, NotRequired

import yaml
from pydantic import Field, with_config
from typing_extensions import TypedDict

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, is_half_written, write_atomically
from tokenfree.core.settings import OPERATIONAL, build, flatten, marked_keys, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import OPEN, StoredFile, check_finished, rewriting
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, R
from tokenfree.train.data.mixture import Data, Mixture, as_data

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


# A key that only fine-tuning recipes have.
_TASK = "task"


@dataclasses.dataclass(frozen=True)
class InitFrom:
    path: str  # absolute path or address
    sha256: str  # hash of the weights


@dataclasses.dataclass(frozen=True)
class RunConfig(Generic[R]):
    recipe: R  # resolved
    data: Data  # data directory or directories, or the training file; for an imported run, its source
    manifest: str  # fingerprint of the data; "" for an imported run
    init_from: InitFrom | None = None  # None: it started from fresh weights
    # Hashes at its start, see `own_code.hashes`.
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # See train/runs/provenance.py; not compared when a run resumes.
    attempts: tuple[Mapping[str, Any], ...] = ()
    # For fine-tuning: the path of each split.
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        data = self.data.words() if isinstance(self.data, Mixture) else self.data
        mapping = {
            "format": RUN_FORMAT,
            "recipe": to_mapping(self.recipe),
            "data": data,
            "manifest": self.manifest,
        }
        optional = {
            "files": dict(self.files),
            "init_from": self.init_from and dataclasses.asdict(self.init_from),
            "code": dict(self.code),
            "attempts": [dict(attempt) for attempt in self.attempts],
        }
        mapping |= {key: value for key, value in optional.items() if value}
        return yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True)


def read_config(run: AnyPath, *, trust_code: bool = False) -> RunConfig[PretrainRecipe]:
    """Return the config of a pretraining run.

    Raises UserError if there is none or it is invalid or untrusted.
    """
    return _read(PretrainRecipe, run, trust_code)


def read_finetuned(run: AnyPath, *, trust_code: bool = False) -> RunConfig[FinetuneRecipe]:
    return _read(FinetuneRecipe, run, trust_code)


def read_any_config(
    run: AnyPath, *, trust_code: bool = False
) -> RunConfig[PretrainRecipe] | RunConfig[FinetuneRecipe]:
    return (read_finetuned if is_finetuned(run) else read_config)(run, trust_code=trust_code)


def is_finetuned(run: AnyPath) -> bool:
    mapping = _mapping(run)
    if mapping is None:
        raise no_run(run)
    return _TASK in mapping["recipe"]


def _read(cls: type[R], run: AnyPath, trust_code: bool) -> RunConfig[R]:
    config = _config_of(cls, run, trust_code)
    if config is None:
        raise no_run(run)
    return config


def no_run(run: AnyPath) -> UserError:
    return UserError(f"{run} holds no run (no config.yaml); give the --output of a `tokenfree pretrain`")


def config_before(run: AnyPath, recipe: R, name: str | None = None) -> RunConfig[R] | None:
    """Return the config of the run that `recipe` would resume, or None.

    Raises UserError if its recipe is invalid.
    """
    try:
        return _config_of(type(recipe), run, trust_code=False, name=name)
    except own_code.UntrustedCode as error:
        raise UserError(
            f"{name or run} is a run of other settings: it has parts that are not in the recipe, "
            f"{', '.join(error.names)}; give the settings of the run, or another --output to start a new one"
        ) from None


def _config_of(cls: type[R], run: AnyPath, trust_code: bool, name: str | None = None) -> RunConfig[R] | None:
    mapping = _mapping(run)
    if mapping is None:
        return None
    if (_TASK in mapping["recipe"]) != (cls is FinetuneRecipe):
        is_one, expected = (
            ("fine-tuning", "pretraining") if cls is PretrainRecipe else ("pretraining", "fine-tuning")
        )
        raise UserError(f"{run} is a run of {is_one}, where one of {expected} is needed; give another")
    with own_code.trusting(trust_code, str(run)):
        built = build(cls, mapping["recipe"], source=f"{run}/{CONFIG_NAME}")
    own_code.warn_of_changes(built, mapping.get("code", {}), name or str(run))
    return RunConfig(
        built,
        as_data(mapping["data"]),
        mapping["manifest"],
        InitFrom(**mapping["init_from"]) if "init_from" in mapping else None,
        mapping.get("code", {}),
        tuple(mapping.get("attempts") or ()),
        mapping.get("files", {}),
    )


def _mapping(run: AnyPath) -> Mapping[str, Any] | None:
    check_finished(run, CONFIG_NAME.__eq__)
    try:
        return CONFIG.yaml(Storage.at(run), CONFIG_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None


def open_run(run: Path, config: RunConfig[R], *, name: str | None = None) -> RunConfig[R]:
    """Create a run, or check that it has the same recipe, data and first weights. Return its config.

    Raises UserError if they differ. Paths of `config` may differ from those of the existing run if their
    content is the same. Messages call it `name`.
    """
    file = run / CONFIG_NAME
    try:
        run.mkdir(parents=True, exist_ok=True)
        # As when a command opens the run that it has just created.
        with contextlib.suppress(OSError):
            if file.read_bytes() == config.text().encode():
                return config
        previous = config_before(run, config.recipe, name)
        if previous is not None:
            _compare(previous, config, name or str(run))
            config = dataclasses.replace(config, code=previous.code, attempts=previous.attempts)
        elif any(path.name != "lock" and not is_half_written(path) for path in run.iterdir()):
            raise UserError(f"{run} holds other files and no run; give an empty or new folder as --output")
        if previous is None or file.read_text(encoding="utf-8") != config.text():
            with rewriting(Storage.at(str(run)), [CONFIG_NAME]):
                write_atomically(file, config.text())
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {run}: {error.strerror}; give another --output"
        ) from None
    return config


def _compare(previous: RunConfig[R], now: RunConfig[R], name: str) -> None:
    if now.manifest and previous.manifest == "":  # see train/huggingface/folders.py
        raise UserError(
            f"{name} was {previous.data} and is trained on no data; to train on from its weights, give --init-from "
            f"{name} and another --output"
        )
    old, new = (dict(flatten(to_mapping(config.recipe))) for config in (previous, now))
    operational = {key for config in (previous, now) for key in marked_keys(config.recipe, OPERATIONAL)}
    keys = [
        key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key) and key not in operational
    ]
    differences = [f"{key} is {new.get(key)!r}, was {old.get(key)!r}" for key in keys]
    if previous.manifest != now.manifest:
        differences.append(f"the data differ from those of {previous.data}")
    old_start, new_start = previous.init_from, now.init_from
    if (old_start and old_start.sha256) != (new_start and new_start.sha256):
        options = [
            f"--init-from {start.path}" if start else "no --init-from" for start in (old_start, new_start)
        ]
        differences.append(f"it began with {options[0]}, not with {options[1]}")
    if differences:
        action = "give the settings of the run, or another --output to start a new one"
        if "train.steps" in keys:
            action += (
                " (the learning rate of every step depends on train.steps; --extend-to makes a run longer)"
            )
        raise UserError(f"{name} is a run of other settings: {'; '.join(differences)}; {action}")
