"""The Beam graph of preprocessing: only wiring. Every step is a function of `preprocess` that commits its own files, so
what crosses a shuffle is a number, on every runner.

    from pipelines.preprocess import run_preprocess
    manifest = run_preprocess(PreprocessConfig(wikipedia=("dump.xml.bz2",)), "output", workers=4)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.progress import Progress, Watcher
from pipelines.runners import make_pipeline, runner_options, worker_environment
from pipelines.worker_processes import is_dead_worker
from preprocess.config import PreprocessConfig
from preprocess.errors import JobError, UserError
from preprocess.extract import sample_split
from preprocess.finish import finish
from preprocess.job import (
    Job,
    begin,
    build_one_shard,
    has_documents,
    make_plan,
    num_runs,
    num_shards,
    num_splits,
    read_one_split,
)
from preprocess.manifest import Manifest, load_manifest
from preprocess.ownership import abandon, finished, given_model, identity, release, tidy
from preprocess.sources import hash_inputs, plan_splits
from preprocess.storage import Storage

# How an expected error of a worker process reads in the traceback that reaches us as text.
_REMOTE_ERROR = re.compile(r"preprocess\.errors\.(UserError|JobError): (.*?)(?: \[while running|\n|\\n|$)")


# Measured on the English excerpt (benchmarks/preprocess_stages.py): reading and cleaning take two thirds of the CPU
# time, and a character with all columns takes nine bytes.
READING_SHARE, OUTPUT_BYTES_PER_CHARACTER = 0.66, 9.0
SAMPLE_SECONDS = 1.0


@dataclass(frozen=True)
class PlanDescription:
    """What a job would do: `bytes` of input after decompression; the rest is estimated from a sample of its pages."""

    inputs: int
    splits: int
    bytes: int
    estimated_characters: int
    estimated_shards: int
    estimated_output_bytes: int
    estimated_seconds: float  # of one core, without the training of a vocabulary


def run_preprocess(
    config: PreprocessConfig,
    output: str,
    *,
    runner: str = "direct",
    workers: int = 1,
    beam_options: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Manifest:
    """Preprocess the inputs of `config` into the directory `output` (a path or any fsspec address).

    Killed at any moment and called again, it goes on where it was and ends with the same bytes. Where the same job is
    complete already, it reports the stage "complete" and returns the manifest.

    Raises:
        UserError: bad inputs or options; `output` cannot be written to, or holds something else.
        JobError: the job failed; what is finished of it is kept, and calling again goes on from there.
    """
    options = runner_options(runner, workers, beam_options)
    storage = Storage.at(output)
    if workers != 1 and not storage.is_shared:
        raise UserError(f"{output}: other processes cannot see it; give --workers 1 or another --output")
    report = progress or (lambda _: None)
    splits = plan_splits(config)  # first: it finds bad inputs without reading them whole
    wanted = identity(config, hash_inputs(path for split in splits for path in split.inputs))
    manifest = finished(storage, wanted)
    if manifest is not None:
        tidy(storage)
        shards = sum(len(split.shards) for split in manifest.splits.values())
        report(Progress("complete", shards, shards, 0, manifest.counters["characters"]))
        return manifest
    job = begin(storage, wanted, config, splits)
    try:
        with _expected_errors(storage), worker_environment(options), Watcher(job, report):
            _run(job, options)
    except UserError:
        if not has_documents(job):
            abandon(storage)
        elif not num_shards(job):
            release(storage)
        raise
    manifest = load_manifest(storage.url)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    report(Progress("finish", len(shards), len(shards), size, manifest.counters["characters"]))
    return manifest


def describe_plan(config: PreprocessConfig) -> PlanDescription:
    """What `run_preprocess` would do with this config, told by the sizes of its inputs and by the first pages of the
    largest one, read for a second. UserError for bad inputs."""
    splits = plan_splits(config)
    if config.vocabulary.model is not None:
        given_model(config.vocabulary.model)
    size = sum(split.size for split in splits)
    sample = sample_split(max(splits, key=lambda split: split.size), config, SAMPLE_SECONDS)
    characters = round(size * sample.characters_per_byte)
    languages = {language for split in splits for language in split.languages}
    shards = config.shards or -(-characters // (config.shard_characters * len(languages))) or 1
    num_dataset_splits = 2 if config.validation_fraction else 1
    return PlanDescription(
        inputs=len({name for split in splits for name in split.inputs}),
        splits=len(splits),
        bytes=size,
        estimated_characters=characters,
        estimated_shards=num_dataset_splits * shards * len(languages),
        estimated_output_bytes=round(characters * OUTPUT_BYTES_PER_CHARACTER),
        estimated_seconds=size * sample.seconds_per_byte / READING_SHARE,
    )


def build_graph(pipeline: beam.Pipeline, job: Job) -> None:
    """Splits -> runs -> vocabulary and plan -> shards -> manifest."""
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "List splits" >> beam.FlatMap(lambda _, job: range(num_splits(job)), job)
        | "Spread splits" >> beam.Reshuffle()
        | "Read and clean a split" >> beam.Map(lambda index, job: read_one_split(job, index), job)
        | "Await all runs" >> beam.combiners.Count.Globally()
        | "Train vocabulary, plan shards" >> beam.FlatMap(lambda _, job: range(make_plan(job)), job)
        | "Spread shards" >> beam.Reshuffle()
        | "Build a shard" >> beam.Map(lambda index, job: build_one_shard(job, index), job)
        | "Await all shards" >> beam.combiners.Count.Globally()
        | "Reconcile and finish" >> beam.Map(lambda _, job: finish(job), job)
    )


def _run(job: Job, options: PipelineOptions) -> None:
    """Run the graph. A worker process that dies (killed, out of memory) costs what it had not committed: the embedded
    runner gives up then, so the graph is run again, until a second attempt in a row commits nothing."""
    committed, in_vain = num_runs(job) + num_shards(job), 0
    while True:
        try:
            with make_pipeline(options) as pipeline:
                build_graph(pipeline, job)
            return
        except RuntimeError as error:
            before, committed = committed, num_runs(job) + num_shards(job)
            in_vain = in_vain + 1 if committed == before else 0
            if not is_dead_worker(error) or in_vain > 1:
                raise


@contextlib.contextmanager
def _expected_errors(storage: Storage) -> Iterator[None]:
    """Errors of the steps as they were raised, in whichever process, and whatever the runner wrapped them in."""
    try:
        yield
    except Exception as error:
        found = _REMOTE_ERROR.search(f"{type(error).__module__}.{type(error).__name__}: {error}")
        if found is None:
            dead = is_dead_worker(error)
            cause = "a worker died; was it out of memory?" if dead else f"{type(error).__name__}: {_last_line(error)}"
            raise JobError(
                f"{storage.url}: the job failed ({cause}); what is finished is kept: "
                "mend the cause and run the same command again"
            ) from error
        kind, message = found.groups()
        raise (UserError if kind == "UserError" else JobError)(message) from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
