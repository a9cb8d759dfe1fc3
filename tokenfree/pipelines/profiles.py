"""Profiles: the options of a Beam runner as a YAML file, `beam_profiles/NAME.yaml` or one of the user's own.

runner: FlinkRunner            # Beam's name of it
flink_master: localhost:8081   # any option of Beam's, without its dashes; null is as good as absent
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tokenfree.preprocess.common.errors import UserError

FOLDER = files("tokenfree.pipelines") / "beam_profiles"


@dataclass(frozen=True)
class Profile:
    """`runner` is Beam's name; `options` are what is passed to Beam beside it, by name; `source` is for messages."""

    runner: str
    options: Mapping[str, Any]
    source: str

    def flags(self) -> list[str]:
        """The options as on a command line: true is a flag alone, a list repeats it, a mapping is JSON."""
        return [flag for name, value in self.options.items() for flag in _flags(name, value)]


def profile_names() -> list[str]:
    """The profiles that come with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in FOLDER.iterdir() if file.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        UserError: there is none.
    """
    if name not in profile_names():
        raise UserError(f"--runner: there is no {name!r}; give one of {', '.join(profile_names())}, or --profile FILE")
    return _parsed((FOLDER / f"{name}.yaml").read_text("utf-8"), f"profile {name}")


def read_profile(path: str) -> Profile:
    """The profile in a file.

    Raises:
        UserError: it cannot be read, or is none.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"--profile {path}: cannot be read ({reason}); give a YAML file of Beam's options") from None
    return _parsed(text, path)


def _parsed(text: str, source: str) -> Profile:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise UserError(f"{source}: no YAML{line}; see beam_profiles/flink.yaml for an example") from None
    if not isinstance(values, dict) or not isinstance(values.get("runner"), str):
        raise UserError(f"{source}: no profile; it needs a line such as 'runner: FlinkRunner' and options below it")
    odd = [name for name in values if not isinstance(name, str) or not name.isidentifier()]
    if odd:
        raise UserError(f"{source}: {odd[0]}: no name of an option; write it without dashes, as in flink_master")
    options = {name: value for name, value in values.items() if name != "runner" and value is not None}
    return Profile(values["runner"], options, source)


def _flags(name: str, value: Any) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif value is False:
        yield f"--no_{name}"
    elif isinstance(value, list):
        for one in value:
            yield from _flags(name, one)
    else:
        yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"
