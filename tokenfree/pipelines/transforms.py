"""Beam transforms: the preprocessing job as one of them, and its parts for pipelines of your own."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from tokenfree.core.files import AnyPath
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.preprocess.documents.extract import DroppedPage, FailedPage, PageCounters, extract
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.job.inputs import read_given_model
from tokenfree.preprocess.job.job import WORK, PreprocessJob
from tokenfree.preprocess.job.output import begin_alone
from tokenfree.preprocess.job.read import own_steps, write_pages
from tokenfree.preprocess.job.stages import READING, STAGES, Stage, one_task, run_if_current
from tokenfree.preprocess.job.steps import Plan
from tokenfree.preprocess.records import Document, InputSplit, Page
from tokenfree.preprocess.shards.build import BuiltShard
from tokenfree.preprocess.shards.sorted_runs import SortedRun
from tokenfree.preprocess.sources.splits import plan_splits, read_split

NAMESPACE = "tokenfree"  # of metrics, which add up to the counters of a manifest
READ_NAMESPACE = "tokenfree.read"  # of the metrics of `ReadDocuments`


class Task(NamedTuple):
    """A task of a stage, by its number."""

    number: int


class Preprocess(beam.PTransform):
    """From a pipeline to the `ShardEntry` of each shard, which come when the data directory `output` is complete.

    The inputs are those of `config`. The elements are tasks, and small records of what each has committed:
    runs, a plan and shards. A stage begins when the previous one has ended. The metrics are those of
    `counts`, also of what an earlier attempt has committed.

    Args:
        job: The job, if it has begun.
        trust_code: Run the code outside tokenfree that the config names.

    Expanding raises UserError if the inputs are bad, or `output` is complete, not writable or of another job.
    """

    def __init__(
        self,
        config: PreprocessConfig,
        output: AnyPath,
        job: PreprocessJob | None = None,
        *,
        trust_code: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.output = output
        self.job = job
        self.trust_code = trust_code
        self.with_resource_hints(min_ram="1GB")

    def expand(self, pbegin: Any) -> Any:
        job = self.job or begin_alone(self.config, self.output, trust_code=self.trust_code)
        begun = pbegin | "Begin" >> beam.Create([Task(0)]).with_output_types(Task)
        return begun | "Stages" >> _Stages(job, STAGES)


class _Stages(beam.PTransform):
    def __init__(self, job: PreprocessJob, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.job = job
        self.stages = stages

    def expand(self, records: Any) -> Any:
        shards: Any = None
        for stage in self.stages:
            records |= stage.name >> RunStage(self.job, stage)
            if stage.record is BuiltShard:
                shards = records
        finished = records | "Finished" >> beam.combiners.Count.Globally()
        entries = beam.Map(lambda shard, _: shard.entry, AsSingleton(finished)).with_output_types(ShardEntry)
        return shards | "Shard entries" >> entries


class ReadDocuments(beam.PTransform):
    """From a pipeline to the pages of the inputs of `config`: `documents`, `dropped` by filters, and `failed`.

    The three outputs hold a `Document`, `DroppedPage` or `Failure` each. Templates are not expanded, and
    equal texts stay: only a job knows all pages. Expanding raises UserError if the inputs are bad, or the
    config names code outside tokenfree without `trust_code`.
    """

    DROPPED, FAILED = "dropped", "failed"

    def __init__(self, config: PreprocessConfig, *, trust_code: bool = False) -> None:
        super().__init__()
        self.config = config
        self.trust_code = trust_code

    def expand(self, pbegin: Any) -> Any:
        own_steps(self.config, trust_code=self.trust_code)
        lines = [split.to_json() for split in plan_splits(self.config)]
        read = beam.ParDo(_Read(self.config)).with_outputs(self.DROPPED, self.FAILED, main="documents")
        return pbegin | "Input splits" >> beam.Create(lines) | "Spread" >> beam.Reshuffle() | "Read" >> read


class _Read(beam.DoFn):
    def __init__(self, config: PreprocessConfig) -> None:
        self.config = config

    def process(self, line: str) -> Iterator[Any]:
        counters, split, config = PageCounters(), InputSplit.from_json(line), self.config
        steps = own_steps(config)
        pages = read_split(split, steps.readers)
        for result in extract(pages, config.namespaces, config.filters, counters, steps=steps):
            if isinstance(result, FailedPage):
                yield TaggedOutput(ReadDocuments.FAILED, result.failure)
            elif isinstance(result, DroppedPage):
                yield TaggedOutput(ReadDocuments.DROPPED, result)
            else:
                yield result
        _count(_of_pages(counters.to_json()), READ_NAMESPACE)


class CutWindows(beam.PTransform):
    """From documents to windows: dicts of the columns of a shard.

    `vocabulary` is the path of a SentencePiece model.
    """

    def __init__(self, config: PreprocessConfig, vocabulary: str | None = None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary

    def expand(self, documents: Any) -> Any:
        cut = beam.ParDo(_Cut(self.config, self.vocabulary))
        return documents | "Cut" >> cut.with_output_types(dict[str, Any])


class _Cut(beam.DoFn):
    def __init__(self, config: PreprocessConfig, vocabulary: str | None) -> None:
        self.config = config
        self.path = vocabulary

    def setup(self) -> None:
        self.vocabulary = None if self.path is None else Vocabulary.load(read_given_model(self.path))

    def process(self, document: Document) -> Iterator[dict[str, Any]]:
        for windows in iterate_windows([document], self.config, self.vocabulary):
            yield from windows.rows.to_pylist()


class WriteShards(beam.PTransform):
    """From documents or windows to the `ShardEntry` of each shard of the data directory `output`.

    A window is a dict with `document`, `language` and `text`, and becomes a document. `config` has no inputs.
    The bytes depend only on the set of documents: each bundle becomes a sorted run, and the rest is the work
    of a job. Expanding raises UserError if `output` is complete, not writable or of another job.
    """

    def __init__(self, config: PreprocessConfig, output: AnyPath, *, trust_code: bool = False) -> None:
        super().__init__()
        self.config = config
        self.output = output
        self.trust_code = trust_code

    def expand(self, documents: Any) -> Any:
        begun = begin_alone(self.config, self.output, reads=False, trust_code=self.trust_code)
        job = replace(begun, splits=f"{WORK}/splits-{begun.attempt}.jsonl")
        written = documents | "Write runs" >> beam.ParDo(_WriteRuns(job)).with_output_types(str)
        listed = (
            written
            | "All" >> beam.combiners.ToList()
            | "List runs" >> beam.Map(_list_runs, job).with_output_types(Task)
        )
        return listed | "Finish" >> _Stages(job, STAGES[STAGES.index(READING) + 1 :])


class _WriteRuns(beam.DoFn):
    def __init__(self, job: PreprocessJob) -> None:
        self.job = job

    def start_bundle(self) -> None:
        self.pages: list[Page] = []
        self.bytes = 0

    def process(self, item: Document | Mapping[str, Any]) -> Iterator[str]:
        if isinstance(item, Document):
            page = Page(item.id, item.language, item.title, item.text)
        else:
            page = Page(item["document"], item["language"], "", item["text"])
        self.pages.append(page)
        self.bytes += len(page.text)
        if self.bytes >= self.job.config.split_bytes:
            yield self._write()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self.pages:
            yield GlobalWindows.windowed_value(self._write())

    def _write(self) -> str:
        line = json.dumps({"site": None, "run": uuid.uuid4().hex})
        _count(_of_pages(write_pages(self.job, line, self.pages).counters))
        self.start_bundle()
        return line


def _list_runs(lines: list[str], job: PreprocessJob) -> Task:
    job.storage.write_bytes(job.splits, "".join(f"{line}\n" for line in sorted(lines)).encode())
    return Task(len(lines))


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
            _count(values)
        if pages:
            Metrics.distribution(NAMESPACE, "milliseconds_per_page").update(round(milliseconds / pages))
        yield from records


def _count(values: Mapping[str, int], namespace: str = NAMESPACE) -> None:
    for name, value in values.items():
        Metrics.counter(namespace, name).inc(value)


def _of_pages(counters: Mapping[str, Any]) -> dict[str, int]:
    values = {name: counters[name] for name in ("pages", "redirects", "other_namespaces")}
    for kind in ("filtered", "failed", "templates"):
        values |= {f"{kind}_{name}": value for name, value in counters[kind].items()}
    return values


def counts(record: object) -> Mapping[str, int]:
    """Return what a record adds to the counters of the manifest, by name, such as `pages` or `filtered_too_short`."""
    if isinstance(record, SortedRun):
        return _of_pages(record.counters)
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
