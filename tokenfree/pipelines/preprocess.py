"""The Beam graph of preprocessing: only wiring. Every step is a function of `preprocess` that commits its own files, so
what crosses a shuffle is a number, on every runner.

    from tokenfree.pipelines.preprocess import run_preprocess
    manifest = run_preprocess(PreprocessConfig(wikipedia=("dump.xml.bz2",)), "output", workers=4)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from tokenfree.core.errors import JobError, TakenOverError, UserError
from tokenfree.core.locks import claimed
from tokenfree.core.storage import Storage
from tokenfree.pipelines.beam import (
    check_surroundings,
    is_embedded,
    is_on_ray,
    pipelines,
    runner_options,
    worker_environment,
)
from tokenfree.pipelines.direct_runner import is_dead_worker
from tokenfree.pipelines.progress import Progress, Watcher, at_the_end
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, load_manifest
from tokenfree.preprocess.job.finish import finish
from tokenfree.preprocess.job.inputs import finished, identity, with_earlier_values
from tokenfree.preprocess.job.job import PreprocessJob, failed, forget_errors, noted_error
from tokenfree.preprocess.job.near_duplicates import find_in_one_band, num_bands
from tokenfree.preprocess.job.output import abandon, begin, is_tidy, release, remove_left_lock, tidy
from tokenfree.preprocess.job.read import (
    has_documents,
    hash_one_input,
    num_inputs,
    num_runs,
    num_splits,
    read_one_split,
)
from tokenfree.preprocess.job.steps import build_one_shard, make_plan, num_shards
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits

T = TypeVar("T")


def run_preprocess(
    config: PreprocessConfig,
    output: str,
    *,
    runner: str = "direct",
    profile: str | None = None,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
    check_inputs: bool = False,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] = print,
) -> Manifest:
    """Preprocess the inputs of `config` into the directory `output` (a path or any fsspec address).

    Killed at any moment and called again, it goes on where it was and ends with the same bytes. Where the same job is
    complete already, it reports the stage "complete" and returns the manifest.

    Args:
        config: the settings, with the paths of the inputs.
        output: the data directory to make.
        runner: name of a profile of `beam_profiles/`: direct, ray, flink, spark, dataflow or prism.
        profile: a file with the options of a runner, instead of `runner`.
        workers: processes of the direct runner or on the Ray cluster, or how parallel another one works; 0 leaves it to
            the runner, None to the profile.
        beam_options: options passed on to Beam; they win over those of the profile.
        check_inputs: hash all inputs to recognise them where the job is complete; by default names, sizes and times do.
        progress: called with how far the job is, again and again, from a thread.
        notice: told in a line what of an earlier attempt cannot be used, which links among the inputs lead nowhere, and
            what is lost of a Ray cluster.

    Raises:
        UserError: bad inputs or options; `output` cannot be written to, holds something else, or another command writes
            into it.
        JobError: the job failed; what is finished of it is kept, and calling again goes on from there.
    """
    options = runner_options(runner, workers, beam_options, profile)
    storage = Storage.at(output)
    if not storage.is_shared and not (is_embedded(options) and workers in (None, 1) and not is_on_ray(options)):
        raise UserError(f"{output}: other processes cannot see it; give --workers 1 or another --output")
    report = progress or (lambda _: None)
    config = with_earlier_values(config, storage, notice)
    inputs = find_inputs(config, storage.url, notice)
    wanted = identity(config, inputs)
    manifest = finished(storage, wanted, config, inputs, check_inputs=check_inputs)
    # bad inputs are found before the directory is taken
    splits = [] if manifest is not None else plan_splits(config, inputs)
    if manifest is None:
        check_surroundings(options)
    with contextlib.nullcontext() if manifest is not None and is_tidy(storage) else claimed(storage) as number:
        if manifest is None and MANIFEST in storage.names():  # another command wrote it meanwhile
            manifest = finished(storage, wanted, config, inputs)
        if manifest is None:
            job = begin(storage, wanted, config, inputs, splits, notice, number)
            return _make(job, options, report, notice)
        tidy(storage)
    remove_left_lock(storage)
    report(at_the_end("complete", manifest))
    return manifest


def build_graph(pipeline: beam.Pipeline, job: PreprocessJob) -> None:
    """Input splits -> runs -> vocabulary and plan -> shards -> manifest; beside it inputs -> hashes -> manifest. Where
    near-duplicates are dropped, the bands of their sketches are searched between runs and plan.

    Nothing is done yet; what the steps raise while the graph runs is written down by them (see `step_errors`).
    """
    start = pipeline | "Start" >> beam.Create([None])
    hashes = (
        start
        | "List inputs" >> beam.FlatMap(lambda _, job: range(num_inputs(job)), job)
        | "Spread inputs" >> beam.Reshuffle()
        | "Hash an input" >> beam.Map(lambda index, job: _still(job, hash_one_input, index), job)
    )
    runs = (
        start
        | "List splits" >> beam.FlatMap(lambda _, job: range(num_splits(job)), job)
        | "Spread splits" >> beam.Reshuffle()
        | "Read and clean a split" >> beam.Map(lambda index, job: _still(job, read_one_split, index), job)
        | "Await all runs" >> beam.combiners.Count.Globally()
    )
    if num_bands(job):
        runs = (
            runs
            | "List bands" >> beam.FlatMap(lambda _, job: range(num_bands(job)), job)
            | "Spread bands" >> beam.Reshuffle()
            | "Find near-duplicates in a band" >> beam.Map(lambda index, job: _still(job, find_in_one_band, index), job)
            | "Await all bands" >> beam.combiners.Count.Globally()
        )
    shards = (
        runs
        | "Train vocabulary, plan shards" >> beam.FlatMap(lambda _, job: range(_still(job, make_plan) or 0), job)
        | "Spread shards" >> beam.Reshuffle()
        | "Build a shard" >> beam.Map(lambda index, job: _still(job, build_one_shard, index), job)
    )
    _ = (
        (shards, hashes)
        | "Join" >> beam.Flatten()
        | "Await all shards and hashes" >> beam.combiners.Count.Globally()
        | "Reconcile and finish" >> beam.Map(lambda _, job: _still(job, finish), job)
    )


def _still(job: PreprocessJob, step: Callable[..., T], *args: Any) -> T | None:
    """The step, or nothing where another attempt at the job has begun. An engine that goes on with the job of a command
    that is gone gets through it at once, and frees what the new one waits for."""
    try:
        job.storage.check()
        return step(job, *args)
    except TakenOverError:
        return None


def graph_of(config: PreprocessConfig, output: str) -> Callable[[beam.Pipeline], None]:
    """What adds the steps of such a job to a pipeline, for looking at it: nothing is begun."""
    job = PreprocessJob(Storage.at(output).url, config, fingerprint="", reading_fingerprint="", splits="", inputs="")
    return lambda pipeline: build_graph(pipeline, job)


def _make(
    job: PreprocessJob, options: PipelineOptions, report: Callable[[Progress], None], notice: Callable[[str], None]
) -> Manifest:
    """Run the job from where it is to its end."""
    storage = job.storage
    try:
        with _errors_of_steps(storage), worker_environment(options), Watcher(job, report):
            _run(job, options, notice)
            if MANIFEST not in storage.names():
                storage.check()  # the steps did nothing because another command has taken over
    except UserError:
        if not has_documents(job):
            abandon(storage)
        elif not num_shards(job):
            release(storage)
        raise
    manifest = load_manifest(storage.url)
    report(at_the_end("finish", manifest))
    return manifest


def _run(job: PreprocessJob, options: PipelineOptions, notice: Callable[[str], None]) -> None:
    """Run the graph. A worker process that dies (killed, out of memory) costs what it had not committed: the embedded
    runner gives up then, so the graph is run again, until a second attempt in a row commits nothing."""
    committed, in_vain = num_runs(job) + num_shards(job), 0
    with pipelines(options, job, notice) as new_pipeline:
        while True:
            forget_errors(job.storage)
            try:
                with new_pipeline() as pipeline:
                    build_graph(pipeline, job)
                return
            except RuntimeError as error:
                before, committed = committed, num_runs(job) + num_shards(job)
                in_vain = in_vain + 1 if committed == before else 0
                if not is_dead_worker(error):
                    raise
                if MANIFEST in job.storage.names():  # it died in the last step, with all that counts written
                    return tidy(Storage.at(job.url))
                if in_vain > 1:
                    raise


@contextlib.contextmanager
def _errors_of_steps(storage: Storage) -> Iterator[None]:
    """Errors of the steps as they were raised, in whichever process, and whatever the runner wrapped them in."""
    try:
        yield
    except Exception as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # in a step that ran in this thread: wrapped by Beam
            raise KeyboardInterrupt from error
        noted = noted_error(storage)
        if noted is not None:
            raise noted from error
        if isinstance(error, (UserError, JobError)):  # of this process, before or after the graph ran
            raise
        dead = is_dead_worker(error)
        cause = "a worker died; was it out of memory?" if dead else f"{type(error).__name__}: {_last_line(error)}"
        raise failed(storage, cause) from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
