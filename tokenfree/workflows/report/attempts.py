"""The commands that made a run or a sweep, as config.yaml and sweep.yaml record them, for a page."""

from collections.abc import Mapping, Sequence
from typing import Any

Attempt = Mapping[str, Any]  # see train/machine/provenance.py
NOT_RECORDED = "not recorded"
_NAMED = ("torch", "ray")  # packages that are named beside tokenfree; all are in a table


def attempts_of(mapping: Mapping[str, Any]) -> list[Attempt]:
    """The attempts of a config.yaml or a sweep.yaml; none of a folder that an earlier version made."""
    return list(mapping.get("attempts") or ())


def time_of(attempt: Attempt) -> str:
    """`2026-11-22 16:44`, in UTC."""
    return str(attempt.get("time") or NOT_RECORDED)[:16].replace("T", " ")


def versions_of(attempt: Attempt) -> str:
    """`tokenfree 0.1.0 (commit 0cb59b8f6f), Python 3.11.7, torch 2.13.0, ray 2.60.0`."""
    packages, machine = attempt.get("packages") or {}, attempt.get("machine") or {}
    commit = commit_of(attempt)
    parts = [f"tokenfree {packages.get('tokenfree', 'not installed')}" + (f" (commit {commit})" if commit else "")]
    parts += [f"Python {machine['python']}"] if machine.get("python") else []
    return ", ".join([*parts, *(f"{name} {packages[name]}" for name in _NAMED if name in packages)])


def commit_of(attempt: Attempt) -> str:
    """`0cb59b8f6f`, with `-dirty` where files differed from it; nothing where there is none."""
    commit, _, dirty = str(attempt.get("commit") or "").partition("-")
    return commit[:10] + (f"-{dirty}" if dirty else "")


def machine_line(machine: Mapping[str, Any]) -> str:
    """`2 cores, 23.5 GiB, no accelerator, Linux-6.1.0-x86_64-with-glibc2.36`."""
    names = list(machine.get("accelerators") or ())
    kinds = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no accelerator"]
    cores = machine.get("cores")
    parts = [f"{cores} {'core' if cores == 1 else 'cores'}", f"{machine.get('memory_gib')} GiB", *kinds]
    return ", ".join([*parts, str(machine.get("system"))])


def attempt_rows(attempts: Sequence[Attempt]) -> list[list[str]]:
    """A row an attempt: when it began, command, commit, machine."""
    return [
        [
            time_of(attempt),
            str(attempt.get("command") or NOT_RECORDED),
            commit_of(attempt) or "none",
            machine_line(attempt.get("machine") or {}),
        ]
        for attempt in attempts
    ]


def package_rows(attempts: Sequence[Attempt]) -> tuple[list[str], list[list[str]]]:
    """A header and a row a package; a column for each set of versions, by when it was used first."""
    kinds: list[tuple[str, Mapping[str, str]]] = []
    for attempt in attempts:
        packages = {"Python": (attempt.get("machine") or {}).get("python", "–"), **(attempt.get("packages") or {})}
        if packages not in [known for _, known in kinds]:
            kinds.append((time_of(attempt), packages))
    names = dict.fromkeys(name for _, packages in kinds for name in packages)
    header = ["package", "version"] if len(kinds) == 1 else ["package", *(f"from {time}" for time, _ in kinds)]
    return header, [[name, *(packages.get(name, "–") for _, packages in kinds)] for name in names]
