"""What a round has at hand: its random numbers, its folder, and commands whose messages are judged as they end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.fuzz.commands import Outcome, run
from benchmarks.fuzz.damage import damage_file
from benchmarks.fuzz.faults import Fault
from benchmarks.fuzz.judges import judge_message
from benchmarks.fuzz.originals import RECIPES, Originals

LIMIT = 120.0  # seconds of a command; nothing here is to take more than a few


class Round:
    """One round.

    Args:
        seed: from which all its random numbers come.
        folder: an empty folder in which it works.
        originals: what it begins with.

    Attributes:
        story: what was done so far, a line each.
        kills: processes that were killed as ordered.
        killed_trainings: kills of commands that trained.
    """

    def __init__(self, seed: int, folder: Path, originals: Originals) -> None:
        self.seed, self.folder, self.originals = seed, folder, originals
        self.draw = random.Random(f"round {seed}")
        self.story: list[str] = []
        self.kills = self.killed_trainings = 0
        self._commands = 0

    def command(
        self,
        *arguments: str,
        fault: Fault | None = None,
        is_fresh: bool = False,
        environment: Mapping[str, str] | None = None,
        limit: float = LIMIT,
    ) -> Outcome:
        """Run `tokenfree` in the folder of the round and judge what it says; -q is added.

        Raises:
            Finding: see `judge_message`.
        """
        self._commands += 1
        logs = self.folder / f"logs-{self._commands}"
        logs.mkdir()
        name, *rest = arguments
        outcome = run(
            (name, "-q", *rest), folder=self.folder, logs=logs, fault=fault, is_fresh=is_fresh, limit=limit,
            environment={"TOKENFREE_CACHE": str(self.folder / "cache"), **(environment or {})},
        )  # fmt: skip
        fault_told = f"  [{fault}]" if fault is not None else ""
        ended = "killed" if outcome.was_killed else f"status {outcome.status}"
        said = (outcome.err.strip().splitlines() or [""])[-1]
        self.story.append(f"tokenfree {' '.join(arguments)}{fault_told} -> {ended} {said}".strip())
        if outcome.was_killed:
            self.kills += 1
            self.killed_trainings += name in ("pretrain", "sweep")
        judge_message(outcome)
        return outcome

    def take(self, original: Path, name: str | None = None) -> Path:
        """A copy of an original in the folder of the round."""
        target = self.folder / (name or original.name)
        if original.is_dir():
            shutil.copytree(original, target, symlinks=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, target)
        return target

    def damage(self, path: Path) -> str:
        """Damage a file, and note what was done."""
        told = f"{path.parent.relative_to(self.folder)}/{damage_file(path, self.draw)}"
        self.story.append(told)
        return told

    def recipe(self) -> str:
        """One of the recipes that are trained."""
        return self.draw.choice(list(RECIPES))

    def fault(self, changes: int, seconds: float) -> Fault:
        """A kill at a random one of so many changes, or at a random moment."""
        victim = self.draw.choice(("group", "group", "process"))
        if self.draw.random() < 0.6:
            return Fault(change=self.draw.randint(1, max(2, changes)), victim=victim)
        return Fault(seconds=self.draw.uniform(0.0, 1.1 * seconds), victim=victim)
