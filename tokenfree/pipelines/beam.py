"""Beam runners: profiles, the options that each needs, and the graph of a job.

A profile is a YAML file, `beam_profiles/NAME.yaml` or a custom file:

    runner: FlinkRunner            # Beam's name of it
    flink_master: localhost:8081   # any option of Beam without its dashes; null means absent
"""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.pipeline import Pipeline

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.stages import STAGES, one_task, run_if_current

FOLDER = files("tokenfree.pipelines") / "beam_profiles"


@dataclass(frozen=True)
class Profile:
    """A runner by Beam's name, options of Beam by name, and the `source` that names the profile in messages."""

    runner: str
    options: Mapping[str, Any]
    source: str

    def flags(self) -> list[str]:
        """Return the options as on a command line: true is a flag alone, a list repeats it, a mapping is JSON."""
        return [flag for name, value in self.options.items() for flag in _flags(name, value)]


def profile_names() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in FOLDER.iterdir() if file.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """Return the profile of that name. Raises UserError if there is none."""
    if name not in profile_names():
        raise UserError(
            f"--runner: there is no {name!r}; give one of {', '.join(profile_names())}, or --profile FILE"
        )
    return _parsed((FOLDER / f"{name}.yaml").read_text("utf-8"), f"profile {name}")


def read_profile(path: AnyPath) -> Profile:
    """Return the profile in a file. Raises UserError if the file cannot be read or is not a profile."""
    try:
        text = Path(expand_home(path)).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(
            f"--profile {path}: cannot be read ({reason}); give a YAML file of Beam's options"
        ) from None
    return _parsed(text, str(path))


def _parsed(text: str, source: str) -> Profile:
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"{source}: no YAML ({error}); see beam_profiles/flink.yaml for an example") from None
    if not isinstance(values, dict) or not isinstance(values.get("runner"), str):
        raise UserError(
            f"{source}: no profile; it needs a line such as 'runner: FlinkRunner' and options below it"
        )
    odd = [name for name in values if not isinstance(name, str) or not name.isidentifier()]
    if odd:
        raise UserError(
            f"{source}: {odd[0]}: no name of an option; write it without dashes, as in flink_master"
        )
    options = {name: value for name, value in values.items() if name != "runner" and value is not None}
    return Profile(values["runner"], options, source)


def _flags(name: str, value: Any) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif value is False:
        yield f"--no_{name}"
    elif isinstance(value, list):
        for one in value:
            yield from _flags(name, one)
    else:
        yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"


# Programs that Beam downloads for a runner, and its option for a local file instead.
_LOCAL_FILES = {
    "PrismRunner": "prism_location", "FlinkRunner": "flink_job_server_jar", "SparkRunner": "spark_job_server_jar",
}  # fmt: skip


@contextlib.contextmanager
def download_errors(options: Any) -> Iterator[None]:
    """Raise JobError, which names the option of a local file, if Beam cannot download a program for its runner."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition(". ")[0]
        if not reason.startswith("Unable to fetch remote"):
            raise
        option = _LOCAL_FILES[options.view_as(StandardOptions).runner]
        raise JobError(f"{reason}. Download it elsewhere, and name the file: -- --{option}=FILE") from error


EMBEDDED = "FnApiRunner"
RAY = "RAY"  # the `environment_type` that selects a Ray cluster for the stages
# The option that --workers sets. Spark takes its parallelism from its cluster, and Prism's steps run in the
# command.
_WORKERS_OPTION = {"FlinkRunner": "parallelism", "DataflowRunner": "max_num_workers"}

# Options of batch jobs that Beam's job servers for Flink and Spark know, but Python does not.
JOB_SERVER_OPTIONS = (
    "bundle_size", "disable_metrics", "environment_expiration_millis", "execution_mode_for_batch",
    "execution_retry_delay", "files_to_stage", "load_balance_bundles", "max_bundle_size", "number_of_execution_retries",
    "object_reuse", "storage_level", "use_data_stream_for_batch",
)  # fmt: skip

# Anyone who sees the job on its engine could read them. Beam needs none: it does not read our files.
SECRET_OPTIONS = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "azure_connection_string")


def runner_options(
    runner: str, workers: int | None, beam_options: Sequence[str] = (), profile: AnyPath | None = None
) -> PipelineOptions:
    """Return the options of a pipeline. Raises UserError if any of them is unknown or invalid.

    They are those of the profile named `runner` or in the file `profile`, then `workers`, then
    `beam_options`. The last value of an option wins. 0 `workers` means all cores, or the runner's own choice;
    None leaves it to the profile.
    """
    chosen = load_profile(runner) if profile is None else read_profile(profile)
    profile_flags = [f"--runner={chosen.runner}", *chosen.flags()]
    _refuse_unknown(profile_flags, f"{chosen.source}: ")
    requested_flags = [*_parallelism(chosen.runner, workers), *beam_options]
    _refuse_unknown(requested_flags)
    return PipelineOptions([*profile_flags, *requested_flags])


def is_embedded(options: PipelineOptions) -> bool:
    """Return True if the runner inside Beam runs the graph. It both raises and logs errors."""
    return options.view_as(StandardOptions).runner == EMBEDDED


def is_on_ray(options: PipelineOptions) -> bool:
    """Return True if the steps run in processes of a Ray cluster."""
    return is_embedded(options) and options.view_as(PortableOptions).environment_type == RAY


def num_processes(options: PipelineOptions) -> int:
    """Return the number of processes of the direct runner or on the Ray cluster; 0 for one per CPU."""
    return options.view_as(DirectOptions).direct_num_workers


def build_graph(pipeline: Pipeline, job: PreprocessJob) -> None:
    """Add the stages of a job to a pipeline, one after another, without running them."""
    tasks: Any = pipeline | "Start" >> beam.Create([_NO_TASK])
    for name, count, function in STAGES:
        tasks = (
            tasks
            | f"{name}: wait" >> beam.GroupBy(lambda _: None)
            | f"{name}: list" >> beam.FlatMap(_list_tasks, job, count)
        )
        # One process has nothing to spread over.
        if count is not one_task and not is_embedded(pipeline.options):
            tasks |= f"{name}: spread" >> beam.Reshuffle()
        tasks |= name >> beam.Map(_do_task, job, function)


# Always among the tasks: a stage without any would keep the next one from starting.
_NO_TASK = -1


def _list_tasks(_: Any, job: PreprocessJob, count: Callable[[PreprocessJob], int]) -> Iterable[int]:
    return range(_NO_TASK, run_if_current(count, job) or 0)


def _do_task(index: int, job: PreprocessJob, function: Callable[[PreprocessJob, int], object]) -> int:
    if index != _NO_TASK:
        run_if_current(function, job, index)
    return index


def _parallelism(runner: str, workers: int | None) -> list[str]:
    if workers is None:
        return []
    if runner == EMBEDDED:
        return [f"--direct_num_workers={workers}"]
    return [f"--{_WORKERS_OPTION[runner]}={workers}"] if workers and runner in _WORKERS_OPTION else []


def _refuse_unknown(flags: Sequence[str], source: str = "") -> None:
    parser = _BeamArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for options in PipelineOptions.__subclasses__():
        # The hook by which Beam collects its options.
        options._add_argparse_args(parser)
    for name in JOB_SERVER_OPTIONS:
        # Python knows the option, too.
        with contextlib.suppress(argparse.ArgumentError):
            parser.add_argument(f"--{name}", nargs="?")
    try:
        _, unknown = parser.parse_known_args(list(flags))
    except argparse.ArgumentError as error:
        raise UserError(f"{source}{error}") from None
    secret = next(
        (name for name in SECRET_OPTIONS for flag in flags if flag.partition("=")[0] == f"--{name}"), None
    )
    if secret is not None:
        raise UserError(
            f"{source}--{secret}: an engine shows the options of its jobs, so no secret may be among them; give "
            "credentials to its workers by their environment or their service account"
        )
    if unknown:
        raise UserError(
            f"{source}{unknown[0]}: no such Beam option; see the options of the runner, or write it as --name=value"
        )
