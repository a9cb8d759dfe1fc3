"""Preprocess inputs into a data directory, on any runner.

A job is a table of stages (`tokenfree.preprocess.job.stages`). `pipelines.local` runs it on this machine,
`pipelines.ray` on a Ray cluster, and `pipelines.beam` on the engines of Beam. Only the last imports Beam.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath
from tokenfree.core.locks import claimed
from tokenfree.core.machine import cores
from tokenfree.core.ray_access import RAY_LOSSES
from tokenfree.core.storage import Storage
from tokenfree.pipelines import local
from tokenfree.pipelines.progress import Progress, Watcher, at_the_end
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, load_manifest
from tokenfree.preprocess.job.inputs import finished, identity, with_earlier_values
from tokenfree.preprocess.job.job import ERRORS, PreprocessJob, failed, noted_error
from tokenfree.preprocess.job.output import abandon, begin, is_tidy, release, remove_left_lock, tidy
from tokenfree.preprocess.job.read import has_documents, own_steps
from tokenfree.preprocess.job.steps import num_shards
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

MAX_WORKERS = 4096


@dataclass(frozen=True)
class Engine:
    """What runs the stages: a Ray cluster, this machine, Beam's runner in this process, or another engine of Beam.

    Attributes:
        workers: Number of processes, or of concurrent tasks on Ray; 0 for one per CPU.
        options: Options of Beam, if it runs the stages.
    """

    name: Literal["ray", "local", "embedded", "beam"]
    workers: int
    options: "PipelineOptions | None" = None

    @property
    def is_one_process(self) -> bool:
        return self.name == "embedded" or (self.name == "local" and self.workers == 1)


def choose_engine(
    runner: str, workers: int | None, beam_options: Sequence[str] = (), profile: AnyPath | None = None
) -> Engine:
    """Return what runs the stages, for the arguments of `run_preprocess`.

    Raises UserError if any of them is invalid. Imports Beam only where it runs the stages, or has to read
    `beam_options` or `profile`.
    """
    if workers is not None and workers < 0:
        raise UserError(f"--workers: {workers} is too few; give 1 or more, or 0 for all cores")
    if workers is not None and workers > MAX_WORKERS:
        raise UserError(
            f"--workers: {workers:,} is too many; give {MAX_WORKERS:,} or fewer, or 0 for all cores"
        )
    if profile is None and runner in ("direct", "ray"):
        if beam_options:
            raise UserError(
                f"{beam_options[0]}: --runner {runner} takes no options of Beam; give --runner beam, or an engine"
            )
        return (
            Engine("ray", workers or 0)
            if runner == "ray"
            else Engine("local", 1 if workers is None else workers)
        )
    from tokenfree.pipelines import beam

    options = beam.runner_options(runner, workers, beam_options, profile)
    return Engine("embedded" if beam.is_embedded(options) else "beam", workers or 0, options)


def run_preprocess(
    config: PreprocessConfig,
    output: AnyPath,
    *,
    runner: str = "direct",
    profile: AnyPath | None = None,
    workers: int | None = None,
    beam_options: Sequence[str] = (),
    check_inputs: bool = False,
    trust_code: bool = False,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] = print,
) -> Manifest:
    """Preprocess the inputs of `config` into the directory `output` (a path or any fsspec address).

    After being killed at any moment, a second call resumes and produces the same bytes. If the same job is
    already complete, it reports the stage "complete" and returns the manifest.

    Args:
        runner: direct, ray, or a profile in `beam_profiles/`: beam, flink, spark, dataflow or prism.
        profile: File with the options of a runner, instead of `runner`.
        workers: Processes of direct, or concurrent tasks of others; 0 leaves it to the runner, None to the profile.
        beam_options: Options passed on to Beam, which override those of the profile.
        check_inputs: Hash all inputs of a complete job; by default names, sizes and times suffice.
        trust_code: Run the code outside tokenfree that the recipe names.
        progress: Called repeatedly from a thread with the progress of the job.
        notice: Receives one line each about unusable work of an earlier attempt and losses of a Ray cluster.

    Raises UserError if the inputs or options are bad, or `output` is not writable, holds something else or is
    in use. Raises JobError if the job failed. Its finished work is kept, and calling again resumes.
    """
    engine = choose_engine(runner, workers, beam_options, profile)
    own_steps(config, trust_code=trust_code)
    storage = Storage.at(output)
    if not storage.is_shared and not engine.is_one_process:
        raise UserError(f"{output}: other processes cannot see it; give --workers 1 or another --output")
    report = progress or (lambda _: None)
    config = with_earlier_values(config, storage)
    inputs = find_inputs(config, storage.url)
    job_identity = identity(config, inputs)
    manifest = finished(storage, job_identity, config, inputs, check_inputs=check_inputs)
    # Find bad inputs before taking the directory.
    splits = [] if manifest is not None else plan_splits(config, inputs)
    if manifest is None and engine.name == "ray":
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", RAY_LOSSES)  # Ray reads it when it is imported
        from tokenfree.pipelines.ray import check_cluster

        check_cluster()
    with (
        contextlib.nullcontext() if manifest is not None and is_tidy(storage) else claimed(storage) as number
    ):
        if manifest is None and MANIFEST in storage.names():  # another command has written it by now
            manifest = finished(storage, job_identity, config, inputs)
        if manifest is None:
            job = begin(storage, job_identity, config, inputs, splits, notice, number)
            return _make(job, engine, report, notice)
        tidy(storage)
    remove_left_lock(storage)
    report(at_the_end("complete", manifest))
    return manifest


def _make(
    job: PreprocessJob, engine: Engine, report: Callable[[Progress], None], notice: Callable[[str], None]
) -> Manifest:
    storage = job.storage
    try:
        with _errors_of_steps(storage), worker_environment(), Watcher(job, report):
            _run(job, engine, notice)
            if MANIFEST not in storage.names():
                storage.check()  # the steps did nothing because another command has taken over
            # A worker may have died in the last step, after writing everything that counts.
            tidy(Storage.at(job.url))
    except UserError:
        if not has_documents(job):
            abandon(storage)
        elif not num_shards(job):
            release(storage)
        raise
    manifest = load_manifest(storage.url)
    report(at_the_end("finish", manifest))
    return manifest


def _run(job: PreprocessJob, engine: Engine, notice: Callable[[str], None]) -> None:
    job.storage.remove(ERRORS)  # of earlier attempts
    if engine.name == "ray":
        from tokenfree.pipelines import ray

        ray.run_stages(job, engine.workers, notice)
    elif engine.name == "local":
        local.run_stages(job, engine.workers or cores())
    else:
        from tokenfree.pipelines import beam

        assert engine.options is not None
        beam.run_graph(job, engine.options)


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Let worker processes import tokenfree from any directory."""
    previous_path = os.environ.get("PYTHONPATH")
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, previous_path)))
    try:
        yield
    finally:
        if previous_path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = previous_path


@contextlib.contextmanager
def _errors_of_steps(storage: Storage) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # Beam wraps it if the step ran in this thread
            raise KeyboardInterrupt from error
        noted = noted_error(storage)
        if noted is not None:
            raise noted from error
        if isinstance(error, (UserError, JobError)):  # of this process, before or after the graph ran
            raise
        dead = isinstance(error, BrokenExecutor)
        last = str(error).strip().rpartition("\n")[2].strip() or "no message"
        cause = "a worker died; was it out of memory?" if dead else f"{type(error).__name__}: {last}"
        raise failed(storage, cause) from error
