"""The house as it is in the code, for its picture.

The floors are those of tests/test_imports.py, which holds them against the imports; what a room holds is the first
sentence of its docstring; what it stands on, and who uses it from above, are its imports.
"""

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import SOURCE
from tests.test_imports import FLOORS, PACKAGES, files, imports_of_ours, rooms

# The data's way: what is made, in which package, in words, and in which of its rooms.
STATIONS = (
    ("dump", "preprocess", "articles in wikitext, and books", ("download",)),
    ("input splits", "preprocess", "parts of bounded size, one a worker", ("sources",)),
    ("sorted runs", "preprocess", "clean documents in the order of their keys", ("wikitext", "documents")),
    ("shards", "preprocess", "windows with features, no text twice", ("features", "shards")),
    ("batches", "train", "any sample by its number, masked", ("data", "batches")),
    ("model", "train", "vectors, a loss, an update", ("model", "objectives", "loop")),
    ("checkpoints", "train", "and metrics: a run that can go on", ("runs", "worker")),
    ("report", "workflows", "one page about all of it", ("report",)),
)


@dataclass(frozen=True)
class Room:
    """A folder or file of a package: what it holds, its own floors, what it imports there, which packages use it."""

    name: str
    holds: str
    inside: str
    stands_on: tuple[str, ...]
    used_by: tuple[str, ...]


@dataclass(frozen=True)
class Wing:
    """A package: its floors of rooms from the ground up, and the libraries that it imports."""

    name: str
    floors: tuple[tuple[Room, ...], ...]
    libraries: tuple[str, ...]


def house() -> dict[str, Wing]:
    """The packages as they are in the code."""
    graph = imports_of_ours(files())
    wings = {package: _wing(package, graph) for package in PACKAGES}
    for name, package, _, stops in STATIONS:
        known = {room.name for floor in wings[package].floors for room in floor}
        assert set(stops) <= known, f"the station {name!r} of the data's way names a room that is not there"
    return wings


def _wing(package: str, graph: Mapping[Path, set[Path]]) -> Wing:
    below: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    for path, targets in graph.items():
        here = rooms(path, package)
        theirs = {room for target in targets if (room := rooms(target, package)) not in (None, here, "__init__")}
        if here is None:
            for there in theirs:
                users.setdefault(str(there), set()).add(path.parts[0])
        elif here != "__init__":
            below.setdefault(here, set()).update(map(str, theirs))
    floors = [
        tuple(
            Room(
                name,
                _first_sentence(SOURCE / package / name),
                " › ".join(", ".join(sorted(inside)) for inside in FLOORS.get(f"{package}/{name}", ())),
                tuple(sorted(below[name])),
                tuple(other for other in PACKAGES if other in users.get(name, ())),
            )
            for name in sorted(floor)
        )
        for floor in FLOORS.get(package) or _layers(below)
    ]
    return Wing(package, tuple(floors), _libraries(package))


def _layers(below: Mapping[str, set[str]]) -> list[set[str]]:
    """Rooms without an order of their own, each on the lowest floor that its imports allow."""
    left, layers = dict(below), []
    while left:
        layers.append({name for name, targets in left.items() if not targets & left.keys()})
        left = {name: targets for name, targets in left.items() if name not in layers[-1]}
    return layers


def _first_sentence(room: Path) -> str:
    path = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0].replace("`", "")


def _libraries(package: str) -> tuple[str, ...]:
    found: set[str] = set()
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    return tuple(sorted(found - set(sys.stdlib_module_names) - {"tokenfree"}))
