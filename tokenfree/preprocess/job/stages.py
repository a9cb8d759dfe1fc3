"""The table of stages that every runner works through: a Beam graph, a process pool or Ray.

After a stage, the runner asks the next one for its `count` and calls its `function` with each number below
that, on any worker and any number of times. Only numbers cross between stages: each function commits its own
files.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tokenfree.core.errors import TakenOverError
from tokenfree.preprocess.job.finish import finish
from tokenfree.preprocess.job.job import MERGING, PreprocessJob, note_error
from tokenfree.preprocess.job.merges import LEVELS, merge_runs, plan_merges
from tokenfree.preprocess.job.read import hash_one_input, read_one_split
from tokenfree.preprocess.job.steps import (
    Plan,
    build_one_shard,
    find_in_one_band,
    make_plan,
    num_bands,
    num_planned,
)
from tokenfree.preprocess.job.templates import (
    collect_templates,
    merge_templates,
    num_template_parts,
    num_wikis,
)
from tokenfree.preprocess.shards.build import BuiltShard
from tokenfree.preprocess.shards.merge import DamagedFileError
from tokenfree.preprocess.shards.sorted_runs import SortedRun

T = TypeVar("T")


class Stage(NamedTuple):
    """A stage of a job: its name, and the functions that count its tasks and perform the task of a number.

    `function` returns what it has committed, or what an earlier attempt did: a `record`, or a list of them.
    """

    name: str
    count: Callable[[PreprocessJob], int]
    function: Callable[[PreprocessJob, int], object]
    record: type = str


def num_readings(job: PreprocessJob) -> int:
    return len(job.input_lines()) + len(job.split_lines())


def hash_or_read(job: PreprocessJob, index: int) -> list[SortedRun]:
    """Hash an input or read a split. Inputs come first, because a large one takes longer than any split."""
    inputs = len(job.input_lines())
    if index >= inputs:
        return read_one_split(job, index - inputs)
    hash_one_input(job, index)
    return []


def one_task(_: PreprocessJob) -> int:
    return 1


READING = Stage("Hash inputs, read and clean splits", num_readings, hash_or_read, SortedRun)
STAGES: tuple[Stage, ...] = (
    Stage("Collect templates", num_template_parts, collect_templates),
    Stage("Merge the templates of a wiki", num_wikis, merge_templates),
    READING,
    *(Stage(f"Merge runs, level {level}", plan_merges, merge_runs) for level in range(1, LEVELS + 1)),
    Stage("Find near-duplicates in a band", num_bands, find_in_one_band),
    Stage("Train vocabulary, plan shards", one_task, make_plan, Plan),
    Stage("Build a shard", num_planned, build_one_shard, BuiltShard),
    Stage("Reconcile and finish", one_task, finish),
)


def run_if_current(step: Callable[..., T], job: PreprocessJob, *numbers: int) -> T | None:
    """Return what the step returns, or None if another attempt at the job has begun. Record its error.

    An engine can continue a job whose command is gone. Its steps then end at once, for the new command.
    """
    try:
        job.storage.check()
        return step(job, *numbers)
    except TakenOverError:
        return None
    except Exception as error:
        if isinstance(error, DamagedFileError):
            # Its inputs may be gone: read again.
            job.storage.remove(MERGING)
        note_error(job.storage, "-".join([step.__name__, *(f"{number:05}" for number in numbers)]), error)
        raise
