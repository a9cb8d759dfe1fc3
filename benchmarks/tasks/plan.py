"""What a row of the queue is, the commands of its runs, and their order. The rows are in `benchmarks.tasks.rows`.

A row is one setting: a recipe, a set of examples, what is laid over the recipe. Each row has three seeds, of the
weights, the order of the examples and dropout; of a row that begins with a pretrained model, its seed as well. A row of
noise puts noise into the test of each run of another row; there the seed is that of the draws as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.plan import SEEDS, Options
from benchmarks.tasks.data import PARTS, SOURCES, path

COMMON: Options = (
    ("train.threads", "1"),
    ("train.precision", "bfloat16"),
    ("train.checkpoint_every_steps", "100"),
    ("train.validate_every_steps", "100"),
)


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        name: of the row; `NAME-SEED` is the folder of a run.
        label: what tables call its model.
        recipe: the name of a recipe that comes with tokenfree.
        data: the set of examples, by its key in `benchmarks.tasks.data.SOURCES`; of a task that makes its own, what
            tables call them.
        steps: optimizer steps.
        options: over the recipe and `COMMON`.
        pretrained: the row of `benchmarks.learning` whose run, of the same seed, is begun with.
    """

    name: str
    label: str
    recipe: str
    data: str
    steps: int
    options: Options = ()
    pretrained: str | None = None

    @property
    def overrides(self) -> dict[str, str]:
        """All keys that are laid over the recipe, but the seed."""
        return {**dict(COMMON), "train.steps": str(self.steps), **dict(self.options)}

    @property
    def has_files(self) -> bool:
        """Whether its examples are read from files."""
        return self.data in SOURCES


@dataclass(frozen=True)
class Folders:
    """Where a run finds what it needs.

    Attributes:
        data: the sets of examples.
        pretrained: the runs of `benchmarks.learning`.
        runs: the fine-tuning runs.
    """

    data: Path | str = "tasks/data"
    pretrained: Path | str = "learning/runs"
    runs: Path | str = "tasks/runs"


@dataclass(frozen=True)
class Entry:
    """One run of the queue: a row and a seed."""

    row: Row
    seed: int

    @property
    def name(self) -> str:
        """The folder of the run, and the key of its line of results."""
        return f"{self.row.name}-{self.seed}"

    @property
    def work(self) -> str:
        """What there is to do, in words."""
        return f"{self.row.steps:,} steps of {self.row.recipe}"

    def begins_with(self, folders: Folders) -> str | None:
        """The pretrained run that it needs; None: it learns from scratch."""
        return None if self.row.pretrained is None else f"{folders.pretrained}/{self.row.pretrained}-{self.seed}"

    def arguments(self, folders: Folders) -> list[str]:
        """The arguments of `tokenfree` that train and evaluate it."""
        row, begins_with, paths = self.row, self.begins_with(folders), list[str]()
        if row.has_files:
            paths += [each for part in PARTS for each in (f"--{part}", path(folders.data, row.data, part))]
        if begins_with is not None:
            paths += ["--init-from", begins_with]
        options = {**row.overrides, "train.seed": str(self.seed)}
        given = [part for key, value in options.items() for part in (f"--{key}", value)]
        return ["finetune", row.recipe, *paths, "--output", f"{folders.runs}/{self.name}", *given]

    def command(self, folders: Folders) -> str:
        """The command that trains it, as one would type it."""
        return shlex.join(["tokenfree", *self.arguments(folders)])


@dataclass(frozen=True)
class NoiseRow:
    """The test of a row with noise in its texts, by each scheme at the share of the characters that its paper strikes.

    Attributes:
        name: of the row.
        of: the row whose fine-tuned runs are evaluated.
    """

    name: str
    of: Row


@dataclass(frozen=True)
class NoiseEntry:
    """The evaluation of one fine-tuned run with noise."""

    row: NoiseRow
    seed: int

    @property
    def name(self) -> str:
        """The key of its line of results."""
        return f"{self.row.name}-{self.seed}"

    @property
    def finetuned(self) -> Entry:
        """The run that is evaluated."""
        return Entry(self.row.of, self.seed)

    @property
    def work(self) -> str:
        """What there is to do, in words."""
        return f"noise in the test of {self.finetuned.name}"

    def begins_with(self, folders: Folders) -> str:
        """The fine-tuned run that it needs."""
        return f"{folders.runs}/{self.finetuned.name}"

    def arguments(self, folders: Folders) -> list[str]:
        """The arguments of `tokenfree` that evaluate it."""
        test = path(folders.data, self.row.of.data, "test")
        options = ["--data", test, "--strengths", "1", "--seed", str(self.seed), "--json"]
        return ["analyze", "noise", self.begins_with(folders), *options]

    def command(self, folders: Folders) -> str:
        """The command that evaluates it, as one would type it."""
        return shlex.join(["tokenfree", *self.arguments(folders)])


AnyEntry = Entry | NoiseEntry


def queue(rows: Iterable[Row], noise: Iterable[NoiseRow] = ()) -> list[AnyEntry]:
    """All runs in their order: seed 0 of all rows before seed 1, so that a queue that is stopped early has as many
    seeds of each row, but for one. Noise comes after the runs that it is put into."""
    made: list[AnyEntry] = []
    trained, evaluated = list(rows), list(noise)
    for seed in SEEDS:
        made += [Entry(row, seed) for row in trained]
        made += [NoiseEntry(row, seed) for row in evaluated]
    return made
