"""The config of a run: written when the run is created, and compared when a command resumes it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

import yaml

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, is_half_written, write_atomically
from tokenfree.core.settings import OPERATIONAL, build, marked_keys
from tokenfree.core.settings_values import flatten, to_mapping, warn_of_changes
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_finished, rewriting
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, R
from tokenfree.train.data.mixture import Data, Mixture
from tokenfree.train.data.shards import as_data
from tokenfree.train.runs.formats import CONFIG, CONFIG_NAME, RUN_FORMAT

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
    # Hashes at its start, see `code_hashes`.
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # See train/runs/provenance.py; not compared when a run resumes.
    attempts: tuple[Mapping[str, Any], ...] = ()
    # For fine-tuning: the path of each split.
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        mapping = {
            "format": RUN_FORMAT,
            "recipe": to_mapping(self.recipe),
            "data": self.data.words() if isinstance(self.data, Mixture) else self.data,
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
    return _config_of(PretrainRecipe, run, trust_code)


def read_finetuned(run: AnyPath, *, trust_code: bool = False) -> RunConfig[FinetuneRecipe]:
    return _config_of(FinetuneRecipe, run, trust_code)


def read_any_config(
    run: AnyPath, *, trust_code: bool = False
) -> RunConfig[PretrainRecipe] | RunConfig[FinetuneRecipe]:
    return (read_finetuned if is_finetuned(run) else read_config)(run, trust_code=trust_code)


def is_finetuned(run: AnyPath) -> bool:
    return _TASK in _mapping(run)["recipe"]


class NoRunError(UserError):
    """A folder holds no run."""


def no_run(run: AnyPath) -> NoRunError:
    return NoRunError(f"{run} holds no run (no config.yaml); give the --output of a `tokenfree pretrain`")


def config_before(run: AnyPath, recipe: R, name: str | None = None) -> RunConfig[R] | None:
    """Return the config of the run that `recipe` would resume, or None.

    Raises UserError if its recipe is invalid.
    """
    try:
        return _config_of(type(recipe), run, trust_code=False, name=name)
    except NoRunError:
        return None
    except own_code.UntrustedCode as error:
        raise UserError(
            f"{name or run} is a run of other settings: it has parts that are not in the recipe, "
            f"{', '.join(error.names)}; give the settings of the run, or another --output to start a new one"
        ) from None


def _config_of(cls: type[R], run: AnyPath, trust_code: bool, name: str | None = None) -> RunConfig[R]:
    mapping = _mapping(run)
    if (_TASK in mapping["recipe"]) != (cls is FinetuneRecipe):
        is_one, expected = (
            ("fine-tuning", "pretraining") if cls is PretrainRecipe else ("pretraining", "fine-tuning")
        )
        raise UserError(f"{run} is a run of {is_one}, where one of {expected} is needed; give another")
    with own_code.trusting(trust_code, str(run)):
        built = build(cls, mapping["recipe"], source=f"{run}/{CONFIG_NAME}")
    warn_of_changes(built, mapping.get("code", {}), name or str(run))
    return RunConfig(
        built,
        as_data(mapping["data"]),
        mapping["manifest"],
        InitFrom(**mapping["init_from"]) if "init_from" in mapping else None,
        mapping.get("code", {}),
        tuple(mapping.get("attempts") or ()),
        mapping.get("files", {}),
    )


def _mapping(run: AnyPath) -> Mapping[str, Any]:
    check_finished(run, CONFIG_NAME.__eq__)
    try:
        return CONFIG.yaml(Storage.at(run), CONFIG_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise no_run(run) from None


def open_run(run: Path, config: RunConfig[R], *, name: str | None = None) -> RunConfig[R]:
    """Create a run, or check that it has the same recipe, data and first weights. Return its config.

    Raises UserError if they differ. Paths of `config` may differ from those of the existing run if their
    content is the same. Messages call it `name`.
    """
    file = run / CONFIG_NAME
    try:
        run.mkdir(parents=True, exist_ok=True)
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
