"""Beam runners: profiles, the options that each needs, and the graph of a job.

A profile is a YAML file, `beam_profiles/NAME.yaml` or a custom file:

    runner: FlinkRunner            # Beam's name of it
    flink_master: localhost:8081   # any option of Beam without its dashes; null means absent
"""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.pipelines.transforms import Preprocess
from tokenfree.preprocess.job.job import PreprocessJob

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
            f"--runner: there is no {name!r}; give one of direct, ray, {', '.join(profile_names())}, or --profile FILE"
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
    `beam_options`. The last value of an option wins. 0 or None `workers` leave it to the profile.
    """
    chosen = load_profile(runner) if profile is None else read_profile(profile)
    profile_flags = [f"--runner={chosen.runner}", *chosen.flags()]
    _refuse_unknown(profile_flags, f"{chosen.source}: ")
    requested_flags = [*_parallelism(chosen.runner, workers), *beam_options]
    _refuse_unknown(requested_flags)
    return PipelineOptions([*profile_flags, *requested_flags])


def is_embedded(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner == EMBEDDED


def run_graph(job: PreprocessJob, options: PipelineOptions) -> None:
    """Run the job as a graph of Beam.

    Raises the errors of the runner, and JobError if Beam cannot download a program for it.
    """
    cloud = options.view_as(GoogleCloudOptions)
    cloud.job_name = cloud.job_name or f"tokenfree-{job.fingerprint[:12]}"
    with download_errors(options), beam.Pipeline(options=options) as pipeline:
        _ = pipeline | "Preprocess" >> Preprocess(job.config, job.url, job)


def _parallelism(runner: str, workers: int | None) -> list[str]:
    if runner == EMBEDDED and workers not in (None, 1):
        raise UserError(
            f"--workers {workers}: Beam's embedded runner is one process; give --workers 1, or --runner direct"
        )
    return [f"--{_WORKERS_OPTION[runner]}={workers}"] if workers and runner in _WORKERS_OPTION else []


def _refuse_unknown(flags: Sequence[str], source: str = "") -> None:
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            values = PipelineOptions(list(flags)).get_all_options(
                drop_default=True, retain_unknown_options=True
            )
    except SystemExit:
        raise UserError(f"{source}{message.getvalue().strip().rpartition('error: ')[2]}") from None
    unknown = values.keys() - PipelineOptions([]).get_all_options().keys() - set(JOB_SERVER_OPTIONS)
    secret = next(
        (name for name in SECRET_OPTIONS for flag in flags if flag.partition("=")[0] == f"--{name}"), None
    )
    if secret is not None:
        raise UserError(
            f"{source}--{secret}: an engine shows the options of its jobs, so no secret may be among them; give "
            "credentials to its workers by their environment or their service account"
        )
    stray = [
        flag
        for number, flag in enumerate(flags)
        if flag.lstrip("-").partition("=")[0] in unknown
        or not (flag.startswith("--") or (number and "=" not in flags[number - 1]))
    ]
    if stray:
        raise UserError(
            f"{source}{stray[0]}: no such Beam option; see the options of the runner, or write it as --name=value"
        )
