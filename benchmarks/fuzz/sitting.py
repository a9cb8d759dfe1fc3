"""Rounds one after another: which kind comes next, what became of it, and the line that is kept of it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.fuzz.commands import ROOT
from benchmarks.fuzz.judges import Finding
from benchmarks.fuzz.originals import Originals
from benchmarks.fuzz.rounds import disks, folders, inputs, kills, stores
from benchmarks.fuzz.rounds.context import Round

ROUNDS_OF_A_SEED = 100_000
# Each kind with how often it is drawn: those with Ray take a minute, those with a store some ten seconds.
KINDS: Mapping[str, tuple[Callable[[Round], None], float]] = {
    "inputs": (inputs.dumps_and_books, 12),
    "recipes": (inputs.recipes, 14),
    "functions": (inputs.functions, 3),
    "data": (folders.data, 18),
    "begun-data": (folders.begun_data, 6),
    "run": (folders.run, 14),
    "begun-run": (folders.begun_run, 10),
    "sweep": (folders.sweep, 6),
    "kill-preprocess": (kills.preprocess, 5),
    "kill-preprocess-workers": (kills.preprocess_workers, 1.5),
    "kill-pretrain": (kills.pretrain, 12),
    "kill-pretrain-workers": (kills.pretrain_workers, 1.0),
    "kill-sweep": (kills.sweep, 0.7),
    "disk-preprocess": (disks.preprocess, 3),
    "disk-pretrain": (disks.pretrain, 4),
    "store-preprocess": (stores.preprocess, 1),
    "store-pretrain": (stores.pretrain, 2),
}


@dataclass(frozen=True)
class Record:
    """What is kept of a round.

    Attributes:
        round: its number, from which all of it can be repeated.
        kind: one of `KINDS`.
        seed: of the sitting.
        outcome: `passed`, or what was found.
        seconds: that it took.
        kills: how often a process was killed.
        killed_trainings: how many of them trained.
        code: the commit that it ran on.
    """

    round: int
    kind: str
    seed: int
    outcome: str
    seconds: float
    kills: int
    killed_trainings: int
    code: str

    @property
    def has_passed(self) -> bool:
        """Whether nothing was found."""
        return self.outcome == "passed"


def number_of(seed: int, place: int) -> int:
    """The number of a sitting's round at `place`, from 0."""
    return seed * ROUNDS_OF_A_SEED + place


def kind_of(number: int, kinds: tuple[str, ...]) -> str:
    """The kind of a round: one of `kinds`, as often as they are to come."""
    weights = [KINDS[kind][1] for kind in kinds]
    return random.Random(f"kind {number}").choices(kinds, weights)[0]


def possible_kinds() -> tuple[str, ...]:
    """All kinds, without those for which this machine gives no right."""
    return tuple(kind for kind in KINDS if disks.is_possible() or not kind.startswith("disk-"))


def play(number: int, kind: str, work: Path, originals: Originals, code: str) -> tuple[Record, list[str]]:
    """One round; its record and its story. The folder of a round with a finding is kept below `work`/findings."""
    folder = work / "rounds" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    round_ = Round(number, folder, originals)
    begin = time.monotonic()
    outcome = "passed"
    try:
        KINDS[kind][0](round_)
    except Finding as finding:
        outcome = str(finding)
    seconds = round(time.monotonic() - begin, 2)
    seed = number // ROUNDS_OF_A_SEED
    record = Record(number, kind, seed, outcome, seconds, round_.kills, round_.killed_trainings, code)
    if not record.has_passed:
        kept = work / "findings" / str(number)
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, kept)
        (kept / "story.txt").write_text("\n".join([*round_.story, outcome, repeat(record), ""]), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    return record, round_.story


def append(path: Path, record: Record) -> None:
    """Add the line of a round to the file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")


def read(path: Path) -> list[Record]:
    """All records of a file."""
    return [Record(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def repeat(record: Record) -> str:
    """The command that does a round again."""
    return f"python -m benchmarks.fuzz --kind {record.kind} --repeat {record.round}"


def commit() -> str:
    """The commit of the code, `-dirty` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
