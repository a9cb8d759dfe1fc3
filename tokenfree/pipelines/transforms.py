"""Beam transforms: the preprocessing job as one of them, and its parts for pipelines of your own."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton

from tokenfree.core.files import AnyPath
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.output import begin_alone
from tokenfree.preprocess.job.stages import STAGES, Stage, one_task, run_if_current
from tokenfree.preprocess.job.steps import Plan
from tokenfree.preprocess.shards.build import BuiltShard
from tokenfree.preprocess.shards.sorted_runs import SortedRun

NAMESPACE = "tokenfree"  # of the metrics
MIN_MEMORY = "1GB"  # of a worker


class Task(NamedTuple):
    """A task of a stage, by its number."""

    number: int


class Preprocess(beam.PTransform):
    """From a pipeline to the `ShardEntry` of each shard, which come when the data directory `output` is complete.

    The inputs are those of `config`. The elements are tasks, and small records of what each has committed: runs, a
    plan and shards. A stage begins when the previous one has ended. The metrics are those of `counts`, also of
    what an earlier attempt has committed.

    Args:
        job: The job, if it has begun.

    Expanding raises UserError if the inputs are bad, or `output` is complete, not writable or of another job.
    """

    def __init__(self, config: PreprocessConfig, output: AnyPath, job: PreprocessJob | None = None) -> None:
        super().__init__()
        self.config = config
        self.output = output
        self.job = job
        self.with_resource_hints(min_ram=MIN_MEMORY)

    def expand(self, pbegin: Any) -> Any:
        job = self.job or begin_alone(self.config, self.output)
        records = pbegin | "Begin" >> beam.Create([Task(0)]).with_output_types(Task)
        shards: Any = None
        for stage in STAGES:
            records = records | stage.name >> RunStage(job, stage)
            if stage.record is BuiltShard:
                shards = records
        finished = records | "Finished" >> beam.combiners.Count.Globally()
        return shards | "Shard entries" >> beam.Map(_entry, AsSingleton(finished)).with_output_types(
            ShardEntry
        )


def _entry(shard: BuiltShard, _: int) -> ShardEntry:
    return shard.entry


class RunStage(beam.PTransform):
    """A stage of a job, from the records of the stage before it to its own."""

    def __init__(self, job: PreprocessJob, stage: Stage) -> None:
        super().__init__()
        self.job = job
        self.stage = stage

    def expand(self, records: Any) -> Any:
        tasks = (
            records
            | "Wait" >> beam.combiners.Count.Globally()
            | "List" >> beam.FlatMap(_tasks, self.job, self.stage.count).with_output_types(Task)
        )
        if self.stage.count is not one_task:
            tasks |= "Spread" >> beam.Reshuffle()
        perform = _Perform(self.job, self.stage)
        return tasks | "Perform" >> beam.ParDo(perform).with_output_types(self.stage.record)


def _tasks(_: int, job: PreprocessJob, count: Any) -> Iterator[Task]:
    return map(Task, range(run_if_current(count, job) or 0))


class _Perform(beam.DoFn):
    def __init__(self, job: PreprocessJob, stage: Stage) -> None:
        self.job = job
        self.function = stage.function

    def process(self, task: Task) -> Iterator[Any]:
        start = time.monotonic()
        result: Any = run_if_current(self.function, self.job, task.number)
        milliseconds, pages = 1000 * (time.monotonic() - start), 0
        records = result if isinstance(result, list) else [] if result is None else [result]
        for record in records:
            values = counts(record)
            pages += values.get("pages", 0)
            for name, value in values.items():
                Metrics.counter(NAMESPACE, name).inc(value)
        if pages:
            Metrics.distribution(NAMESPACE, "milliseconds_per_page").update(round(milliseconds / pages))
        yield from records


def counts(record: object) -> Mapping[str, int]:
    """Return what a record adds to the counters of the manifest, by name, such as `pages` or `filtered_too_short`."""
    if isinstance(record, SortedRun):
        nested = ("filtered", "failed", "templates")
        values = {name: record.counters[name] for name in ("pages", "redirects", "other_namespaces")}
        return values | {
            f"{kind}_{name}": value for kind in nested for name, value in record.counters[kind].items()
        }
    if isinstance(record, Plan):
        return {"duplicates": record.duplicates, "near_duplicates": record.near_duplicates}
    if isinstance(record, BuiltShard):
        entry = record.entry
        return {
            "documents": entry.documents,
            "windows": entry.rows,
            "characters": entry.characters,
            "subwords": record.subwords,
            "byte_pieces": record.byte_pieces,
            "bytes": entry.bytes,
            "duplicates": record.duplicates,
            "near_duplicates": record.near_duplicates,
        }
    return {}
