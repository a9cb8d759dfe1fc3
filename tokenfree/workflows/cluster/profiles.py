"""Profiles of `ray up`: those in `ray_profiles/` or files; what is wrong with one, what it costs.

Ray takes the sections, and leaves `metadata` to its users. tokenfree reads there where data and runs lie: `storage`, an
address or a path, and `shared_folder`, a path that is mounted on all machines.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.resources
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.settings import flatten

_PLACE = re.compile(r"<[a-z]+(?:-[a-z]+)*>")  # to be replaced by a value of the user's
_DASHBOARD = re.compile(r"--dashboard-host[= ](\S+)")
_KINDS = ("InstanceType", "machineType", "vmSize")  # of machines, as the clouds call them
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # what only this machine reaches
_FREE = {"local"}  # providers whose machines are the user's own


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile as it was read.

    Attributes:
        source: its name or file, as given.
        path: its file.
        mapping: what it says.
    """

    source: str
    path: Path
    mapping: Mapping[str, Any]

    @property
    def is_paid(self) -> bool:
        """Whether its machines cost money while they run."""
        return self.mapping["provider"]["type"] not in _FREE


def folder() -> Path:
    """Where the profiles lie that come with tokenfree."""
    return Path(__file__).with_name("ray_profiles")


def names() -> list[str]:
    """The profiles that come with tokenfree, in alphabetical order."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def find(source: str) -> Path:
    """The file of a profile that is given by name or by file.

    Raises:
        UserError: there is none.
    """
    path = folder() / f"{source}.yaml" if source in names() else Path(source)
    if not path.is_file():
        close = difflib.get_close_matches(source, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UserError(f"profile {source}: no such file; {hint}those that come with tokenfree: {', '.join(names())}")
    return path


def read(source: str) -> Profile:
    """The profile of that name or file, without a fault in it.

    Raises:
        UserError: it cannot be read, or is not what `ray up` takes, or has places to fill in, or its storage is not one
            that all machines reach; all problems are named.
    """
    path = find(source)
    try:
        mapping = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"profile {source}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise UserError(f"profile {source}: should be a mapping of keys to values, not {type(mapping).__name__}")
    problems = schema_problems(mapping) or [*_places(mapping), *_storage_problems(mapping)]
    if problems:
        own = f" (copy it: tokenfree cluster profiles {source} > {source}.yaml)" if path.parent == folder() else ""
        raise UserError(f"profile {source}{own}", problems)
    return Profile(source, path, mapping)


def schema_problems(mapping: Mapping[str, Any]) -> list[str]:
    """What Ray's own schema (ray/autoscaler/ray-schema.json) says against it, each with its key."""
    from jsonschema import Draft7Validator

    errors = sorted(Draft7Validator(_schema()).iter_errors(mapping), key=lambda error: list(map(str, error.path)))
    found = [": ".join(filter(None, (".".join(map(str, error.absolute_path)), error.message))) for error in errors]
    types = mapping.get("available_node_types")
    if not found and types is not None and mapping.get("head_node_type") not in types:
        found.append(f"head_node_type: should be one of available_node_types, {', '.join(types)}")
    return found


def costs(profile: Profile) -> list[str]:
    """The machines that the profile may start, a line for each kind, as a person reads them."""
    mapping, lines = profile.mapping, []
    provider = mapping["provider"]
    if not profile.is_paid:
        machines = [provider.get("head_ip"), *provider.get("worker_ips", [])]
        return [f"Ray on {len(machines)} machines of your own: {', '.join(map(str, machines))}"]
    most = mapping.get("max_workers", 2)  # Ray's default
    for name, node in mapping.get("available_node_types", {}).items():
        values = dict(flatten(node["node_config"]))
        kind = next((value for key, value in values.items() if key.split(".")[-1] in _KINDS), "a machine")
        spot = " (spot)" if "spot" in json.dumps(node["node_config"]).lower() else ""
        if name == mapping.get("head_node_type"):
            lines.append(f"{name}: one {kind}{spot}, until tokenfree cluster down")
        else:
            few, many = node.get("min_workers", 0), min(node.get("max_workers", most), most)
            lines.append(f"{name}: {few} to {many} x {kind}{spot}, as jobs need them")
    return [*lines, f"at most {most} workers together; disks, addresses and traffic come on top"]


def about(name: str) -> str:
    """What a profile that comes with tokenfree is for: the beginning of its opening comment."""
    return find(name).read_text(encoding="utf-8").splitlines()[0].strip("# ").partition(":")[0]


def asks_for_token(profile: Profile) -> bool:
    """Whether Ray is started so that it asks for its token, on all nodes."""
    starts = [command for command in _starts(profile.mapping) if "ray start" in command]
    return bool(starts) and all("RAY_AUTH_MODE=token" in command for command in starts)


def warnings(profile: Profile) -> list[str]:
    """What in the profile opens the cluster to others."""
    hosts = [host for command in _starts(profile.mapping) for host in _DASHBOARD.findall(command)]
    return [
        f"warning: the dashboard is to listen on {host}; Ray runs the code of whoever reaches it"
        for host in hosts
        if host not in LOOPBACK
    ]


def _starts(mapping: Mapping[str, Any]) -> list[str]:
    return [*mapping.get("head_start_ray_commands", []), *mapping.get("worker_start_ray_commands", [])]


@functools.cache
def _schema() -> dict[str, Any]:
    return json.loads(importlib.resources.files("ray.autoscaler").joinpath("ray-schema.json").read_text("utf-8"))


def _places(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The places of a template that nobody has filled in."""
    found: dict[str, str] = {}
    for key, text in _texts(mapping):
        for word in _PLACE.findall(text):
            found.setdefault(word, key)
    yield from (f"{key}: {word} stands for a value of yours" for word, key in found.items())


def _storage_problems(mapping: Mapping[str, Any]) -> Iterator[str]:
    """What would be written to a disk that the other machines do not see."""
    told = mapping.get("metadata") or {}
    storage, shared = told.get("storage"), told.get("shared_folder")
    if not isinstance(storage, str) or not storage:
        yield "metadata.storage: say where data and runs lie, an address such as s3://bucket, or a shared folder"
    elif "://" not in storage and not (isinstance(shared, str) and is_under(storage, [shared])):
        yield (
            f"metadata.storage: {storage} is a path, which each machine has for itself; give an address such as "
            "s3://bucket, or name a folder that all have mounted in metadata.shared_folder"
        )
    if isinstance(shared, str) and shared:
        commands = [text for key, text in _texts(mapping) if "commands" in key]
        if not any(f"mountpoint -q {shared}" in text for text in commands):
            yield (
                f"metadata.shared_folder: nothing sees to it that {shared} is mounted on each machine; put "
                f"`mountpoint -q {shared}` into setup_commands or initialization_commands"
            )


def is_under(path: str, folders: list[str]) -> bool:
    """Whether a path is one of `folders` or lies in one."""
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts in nested mappings and lists, with their keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
