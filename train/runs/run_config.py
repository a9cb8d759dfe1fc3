"""The config of a run: its resolved recipe, the data and their fingerprint; written before anything starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.preprocess.common.settings import build, flatten, to_mapping
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.config import OPERATIONAL, PretrainRecipe


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What config.yaml holds."""

    recipe: PretrainRecipe  # resolved
    data: str  # path or address of the data directory; of an imported run, what it was imported from
    manifest: str  # fingerprint of the data; "" of an imported run


def read_config(run: str | Path) -> RunConfig:
    """The config of an existing run, by its path or address.

    Raises:
        UserError: there is no run in that folder, or its recipe is not one that we know.
    """
    path = f"{run}/config.yaml"
    try:
        mapping = yaml.safe_load(Storage.at(str(run)).read_bytes("config.yaml"))
    except OSError:
        raise UserError(f"{run} holds no run (no config.yaml); give the --output of a `tokenfree pretrain`") from None
    recipe = build(PretrainRecipe, mapping["recipe"], source=path)
    return RunConfig(recipe, mapping["data"], mapping["manifest"])


def open_run(run: Path, recipe: PretrainRecipe, data: str, manifest: str, *, name: str | None = None) -> None:
    """Make the folder of a new run, or see that an existing one is of the same recipe and data.

    Args:
        run: the folder.
        data: path or address of the data directory, to be remembered.
        manifest: the fingerprint of the data.
        name: what messages call the run, by default its path.

    Raises:
        UserError: it is of another recipe or other data (all differences are named), or cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        if (run / "config.yaml").exists():
            _compare(run, recipe, manifest, name or str(run))
        elif any(path.name != "lock" for path in run.iterdir()):
            raise UserError(f"{run} holds other files and no run; give an empty or new folder as --output")
        mapping = {"recipe": to_mapping(recipe), "data": data, "manifest": manifest}
        write_atomically(run / "config.yaml", yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise UserError(f"cannot write the run folder {run}: {error.strerror}; give another --output") from None


def _compare(run: Path, recipe: PretrainRecipe, manifest: str, name: str) -> None:
    before = read_config(run)
    old, new = (dict(flatten(to_mapping(each))) for each in (before.recipe, recipe))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key) and key not in OPERATIONAL]
    differences = [f"{key} is {new.get(key)!r}, was {old.get(key)!r}" for key in keys]
    if before.manifest != manifest:
        differences.append(f"the data differ from those of {before.data}")
    if differences:
        remedy = "give the settings of the run, or another --output to start a new one"
        if "train.steps" in keys:
            remedy += " (the learning rate of every step depends on train.steps)"
        raise UserError(f"{name} is a run of other settings: {'; '.join(differences)}; {remedy}")
