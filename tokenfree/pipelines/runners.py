"""Beam runners by name: the options that each needs, and the surroundings in which its workers find our modules."""

from __future__ import annotations

import argparse
import contextlib
import copy
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.pipeline import Pipeline

import tokenfree
from tokenfree.pipelines.direct_runner import ProcessRunner, silent_streams
from tokenfree.pipelines.profiles import load_profile, read_profile
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.job.preprocess_job import PreprocessJob

EMBEDDED = "FnApiRunner"
RAY = "RAY"  # the environment_type of the embedded runner whose workers are on a Ray cluster
MOST_WORKERS = 4096
_TOLD_BY_US = "A worker died or was killed|Raylet is terminated|has been marked dead"  # what Ray prints of losses
# What --workers sets. Spark takes its parallelism from its cluster, Prism's steps run in the command.
_WORKERS_OPTION = {"FlinkRunner": "parallelism", "DataflowRunner": "max_num_workers"}

# Of a batch job, which Python does not know: Beam's job servers for Flink and Spark do.
JOB_SERVER_OPTIONS = (
    "bundle_size", "disable_metrics", "environment_expiration_millis", "execution_mode_for_batch",
    "execution_retry_delay", "files_to_stage", "load_balance_bundles", "max_bundle_size", "number_of_execution_retries",
    "object_reuse", "storage_level", "use_data_stream_for_batch",
)  # fmt: skip

# They would be read by whoever sees the job on its engine; our files are not read through Beam anyway.
SECRET_OPTIONS = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "azure_connection_string")


def runner_options(
    runner: str, workers: int | None, beam_options: Sequence[str] = (), profile: str | None = None
) -> PipelineOptions:
    """The options of a pipeline: those of the profile named `runner`, or in the file `profile`, then `workers`, then
    `beam_options`, of which the last wins. 0 `workers` are all cores, or as many as the runner sees fit; None leaves it
    to the profile.

    Raises:
        UserError: unknown runner or profile, a negative number of workers, or an option that Beam does not know.
    """
    chosen = load_profile(runner) if profile is None else read_profile(profile)
    if workers is not None and workers < 0:
        raise UserError(f"--workers: {workers} is too few; give 1 or more, or 0 for all cores")
    if workers is not None and workers > MOST_WORKERS:
        raise UserError(f"--workers: {workers:,} is too many; give {MOST_WORKERS:,} or fewer, or 0 for all cores")
    ours = [f"--runner={chosen.runner}", *chosen.flags()]
    _refuse_unknown(ours, f"{chosen.source}: ")
    given = [*_parallelism(chosen.runner, workers), *beam_options]
    _refuse_unknown(given)
    return PipelineOptions([*ours, *given])


def is_embedded(options: PipelineOptions) -> bool:
    """Whether the graph is run by the runner inside Beam, which raises what goes wrong as well as logging it."""
    return options.view_as(StandardOptions).runner == EMBEDDED


def is_on_ray(options: PipelineOptions) -> bool:
    """Whether the steps run in processes of a Ray cluster."""
    return is_embedded(options) and options.view_as(PortableOptions).environment_type == RAY


def check_surroundings(options: PipelineOptions) -> None:
    """See that there is what the runner needs, before anything is written.

    Raises:
        UserError: there is no Ray cluster to join.
    """
    if is_on_ray(options):
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _TOLD_BY_US)  # read when Ray is imported
        from tokenfree.pipelines import ray_workers

        ray_workers.check_cluster()


@contextlib.contextmanager
def pipelines(
    options: PipelineOptions, job: PreprocessJob, notice: Callable[[str], None]
) -> Iterator[Callable[[], Pipeline]]:
    """Makes a pipeline for each attempt at a job; `notice` is told of what is lost of a Ray cluster.

    Raises:
        UserError: see `check_surroundings`.
        JobError: the Ray cluster cannot be joined.
    """
    if not is_on_ray(options):
        yield lambda: make_pipeline(options)
        return
    from tokenfree.pipelines.ray_runner import ray_pipelines

    with ray_pipelines(job, notice) as make:
        yield lambda: make(copy.deepcopy(options))


def make_pipeline(options: PipelineOptions) -> Pipeline:
    """A pipeline with these options; where they ask for processes of the embedded runner, with processes of ours."""
    options = copy.deepcopy(options)
    direct = options.view_as(DirectOptions)
    if not is_embedded(options) or direct.direct_running_mode != "multi_processing":
        return Pipeline(options=options)
    direct.direct_running_mode = "in_memory"  # the mode in which the runner takes the environment that it is given
    return Pipeline(ProcessRunner(), options)


def _parallelism(runner: str, workers: int | None) -> list[str]:
    if workers is None:
        return []
    if runner == EMBEDDED:
        if workers == 1:
            return ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
        return ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
    return [f"--{_WORKERS_OPTION[runner]}={workers}"] if workers and runner in _WORKERS_OPTION else []


def _refuse_unknown(flags: Sequence[str], source: str = "") -> None:
    parser = _BeamArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)  # the hook by which Beam itself collects them
    for name in JOB_SERVER_OPTIONS:
        with contextlib.suppress(argparse.ArgumentError):  # Python knows it too
            parser.add_argument(f"--{name}", nargs="?")
    try:
        _, unknown = parser.parse_known_args(list(flags))
    except argparse.ArgumentError as error:
        raise UserError(f"{source}{error}") from None
    secret = next((name for name in SECRET_OPTIONS for flag in flags if flag.partition("=")[0] == f"--{name}"), None)
    if secret is not None:
        raise UserError(
            f"{source}--{secret}: an engine shows the options of its jobs, so no secret may be among them; give "
            "credentials to its workers by their environment or their service account"
        )
    if unknown:
        raise UserError(
            f"{source}{unknown[0]}: no such Beam option; see the options of the runner, or write it as --name=value"
        )


@contextlib.contextmanager
def worker_environment(options: PipelineOptions) -> Iterator[None]:
    """Worker processes started inside import our packages from any directory; the embedded runner keeps silent, because
    what goes wrong in a step is raised as well."""
    before = os.environ.get("PYTHONPATH")
    root = str(Path(tokenfree.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
    # Beam warns of options that are for the job server alone.
    silenced = {"apache_beam.options.pipeline_options": logging.ERROR}
    if is_embedded(options):
        silenced["apache_beam"] = logging.CRITICAL
    levels = {name: logging.getLogger(name).level for name in silenced}
    for name, level in silenced.items():
        logging.getLogger(name).setLevel(level)
    try:
        with silent_streams():
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
