"""Profiles of `ray up`, in `ray_profiles/` or in custom files: their problems and their costs."""

import dataclasses
import importlib.resources
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.settings_errors import nearest_hint
from tokenfree.core.settings_values import flatten
from tokenfree.core.yaml_text import parse_yaml

_PLACE = re.compile(r"<[a-z]+(?:-[a-z]+)*>")  # placeholders for the user's values
_DASHBOARD = re.compile(r"--dashboard-host[= ](\S+)")
_NEVER_EXECUTED = {"azure": "Azure", "gcp": "Google Cloud"}  # never executed on a real account
_KINDS = ("InstanceType", "machineType", "vmSize")  # names of the machine type in the clouds
# Addresses that only this machine reaches.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FOLDER = Path(__file__).with_name("ray_profiles")
_FREE = {"local"}  # providers whose machines belong to the user


@dataclasses.dataclass(frozen=True)
class Profile:
    path: Path
    mapping: Mapping[str, Any]

    @property
    def is_paid(self) -> bool:
        return self.mapping["provider"]["type"] not in _FREE


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def find(source: str) -> Path:
    """Return the file of a profile, given its name or file. Raises UserError if there is none."""
    path = _FOLDER / f"{source}.yaml" if source in names() else Path(source)
    if not path.is_file():
        raise UserError(
            f"profile {source}: no such file and no profile of tokenfree{nearest_hint(source, names())}"
        )
    return path


def read(source: str) -> Profile:
    """Read and check a profile, given its name or file.

    Raises UserError that lists all problems and placeholders.
    """
    path = find(source)
    try:
        mapping = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"profile {source}: not YAML: {error}") from None
    if not isinstance(mapping, dict):
        raise UserError(
            f"profile {source}: should be a mapping of keys to values, not {type(mapping).__name__}"
        )
    placeholders = dict.fromkeys(_PLACE.findall(yaml.safe_dump(mapping)))
    problems = _schema_problems(mapping) or [f"{name} stands for a value of yours" for name in placeholders]
    if problems:
        hint = (
            f" (copy it: tokenfree cluster profiles {source} > {source}.yaml)"
            if path.parent == _FOLDER
            else ""
        )
        raise SettingsError(f"profile {source}{hint}", problems)
    return Profile(path, mapping)


def _schema_problems(mapping: Mapping[str, Any]) -> list[str]:
    from jsonschema import Draft7Validator

    schema = json.loads(
        importlib.resources.files("ray.autoscaler").joinpath("ray-schema.json").read_text("utf-8")
    )
    errors = sorted(
        Draft7Validator(schema).iter_errors(mapping), key=lambda error: list(map(str, error.path))
    )
    problems = [
        ": ".join(filter(None, (".".join(map(str, error.absolute_path)), error.message))) for error in errors
    ]
    types = mapping.get("available_node_types")
    if not problems and types is not None and mapping.get("head_node_type") not in types:
        problems.append(f"head_node_type: should be one of available_node_types, {', '.join(types)}")
    return problems


def costs(profile: Profile) -> list[str]:
    mapping, lines = profile.mapping, []
    provider = mapping["provider"]
    if not profile.is_paid:
        machines = [provider.get("head_ip"), *provider.get("worker_ips", [])]
        return [f"Ray on {len(machines)} machines of your own: {', '.join(map(str, machines))}"]
    # The default of Ray.
    max_workers = mapping.get("max_workers", 2)
    for name, node in mapping.get("available_node_types", {}).items():
        values = dict(flatten(node["node_config"]))
        kind = next((value for key, value in values.items() if key.split(".")[-1] in _KINDS), "a machine")
        spot = " (spot)" if "spot" in json.dumps(node["node_config"]).lower() else ""
        if name == mapping.get("head_node_type"):
            lines.append(f"{name}: one {kind}{spot}, until tokenfree cluster down")
        else:
            few, many = node.get("min_workers", 0), min(node.get("max_workers", max_workers), max_workers)
            lines.append(f"{name}: {few} to {many} x {kind}{spot}, as jobs need them")
    return [*lines, f"at most {max_workers} workers together; disks, addresses and traffic come on top"]


def about(name: str) -> str:
    return find(name).read_text(encoding="utf-8").splitlines()[0].strip("# ").partition(":")[0]


def asks_for_token(profile: Profile) -> bool:
    starts = [command for command in _starts(profile.mapping) if "ray start" in command]
    return bool(starts) and all("RAY_AUTH_MODE=token" in command for command in starts)


def warnings(profile: Profile) -> list[str]:
    provider = _NEVER_EXECUTED.get(profile.mapping["provider"]["type"])
    unknown = (
        [f"warning: a profile for {provider} was never executed; watch its first start"] if provider else []
    )
    hosts = [host for command in _starts(profile.mapping) for host in _DASHBOARD.findall(command)]
    return unknown + [
        f"warning: the dashboard is to listen on {host}; Ray runs the code of anyone who reaches it"
        for host in hosts
        if host not in LOOPBACK
    ]


def _starts(mapping: Mapping[str, Any]) -> list[str]:
    return [*mapping.get("head_start_ray_commands", []), *mapping.get("worker_start_ray_commands", [])]
