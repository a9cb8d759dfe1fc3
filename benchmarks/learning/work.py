"""Works through the queue: what has a line of results is passed over, what another command trains too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.learning.children import call
from benchmarks.learning.data import subwords_per_character
from benchmarks.learning.plan import Entry
from benchmarks.learning.results import Line, Results, summarise
from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.local_files import lock

Tell = Callable[[str], None]
EVALUATED_WINDOWS = 2000


class Queued(Protocol):
    """A run of a queue."""

    @property
    def name(self) -> str: ...
    @property
    def work(self) -> str:
        """What there is to do, in words."""
        ...


Each = TypeVar("Each", bound=Queued)


class NotReady(Exception):
    """What a run needs is not there (yet); the run is left out, not failed."""


class _Held(Exception):
    """Another command works on this run."""


def work(
    entries: Sequence[Each],
    results: Results,
    locks: Path,
    run: Callable[[Each], Line],
    tell: Tell,
    told: Callable[[Line], str],
) -> list[str]:
    """Do every run that has no line yet, one after the other, and append its line. A run that fails is told of and
    passed over: training that diverges is no reason to leave the others undone.

    Args:
        locks: a folder for lock files, so that several commands can share one queue.
        run: trains and evaluates; raises JobError where that fails, NotReady where what it needs is not there.
        tell: gets what happens, line by line.
        told: what a line of results says, in short.

    Returns:
        The names of the runs that failed.
    """
    locks.mkdir(parents=True, exist_ok=True)
    failed = []
    for number, entry in enumerate(entries, 1):
        try:
            with lock(locks / entry.name, seconds=0, held=_Held()):
                if entry.name in results.names():
                    continue
                tell(f"{number}/{len(entries)} {entry.name}: {entry.work}")
                line = run(entry)
                results.append(line)
                tell(f"{number}/{len(entries)} {entry.name}: {told(line)}")
        except _Held:
            tell(f"{number}/{len(entries)} {entry.name}: another command works on it")
        except NotReady as reason:
            tell(f"{number}/{len(entries)} {entry.name}: left out; {reason}")
        except JobError as error:
            failed.append(entry.name)
            tell(f"{number}/{len(entries)} {entry.name}: failed: {error}")
    return failed


def trained(entry: Entry, output: Path, data: Path) -> Line:
    """Train a run into `output/runs`, or go on with it, and evaluate it. The real `Run`.

    Raises:
        JobError: one of the two failed.
    """
    run, log = output / "runs" / entry.name, output / "logs" / f"{entry.name}.log"
    call(entry.arguments(data, output / "runs"), log)
    numbers = output / "logs" / f"{entry.name}.json"
    directory = data / entry.row.data
    windows = str(EVALUATED_WINDOWS)
    call(["evaluate", str(run), "--data", str(directory), "--windows", windows, "--json"], log, output=numbers)
    evaluation = json.loads(numbers.read_text(encoding="utf-8"))
    return summarise(entry, run, evaluation, subwords_per_character(directory))


def told(line: Line) -> str:
    """How well a run of pretraining reads."""
    numbers = line["evaluation"]
    parts = [f"held-out loss {numbers['validation_loss']:.3f}"]
    if "margin" in numbers:
        parts.append(f"{numbers['margin']:.2f} nats under the strongest guess without context")
    if "probe" in numbers:
        parts.append(f"context probe {numbers['probe']:.2f}")
    return ", ".join(parts)
