"""Beam runners by name: the options that each needs, and the surroundings in which its workers find our modules."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.pipeline import Pipeline
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

import tokenfree
from tokenfree.pipelines.direct_runner import worker_process_environment
from tokenfree.preprocess.common.errors import UserError

# "direct" names FnApiRunner outright: Beam's DirectRunner first tries to download another one.
EMBEDDED = "FnApiRunner"
RUNNERS = {"direct": EMBEDDED, "flink": "FlinkRunner", "dataflow": "DataflowRunner", "spark": "SparkRunner"}
MOST_WORKERS = 4096


def runner_options(runner: str, workers: int, beam_options: Sequence[str] = ()) -> PipelineOptions:
    """The options of a pipeline; `beam_options` are passed on and win over ours. 0 `workers` are all cores, or as many
    as the runner sees fit.

    Raises:
        UserError: unknown runner, a negative number of workers, or an option that Beam does not know.
    """
    if runner not in RUNNERS:
        raise UserError(f"--runner: there is no {runner!r}; give one of {', '.join(RUNNERS)}")
    if workers < 0:
        raise UserError(f"--workers: {workers} is too few; give 1 or more, or 0 for all cores")
    if workers > MOST_WORKERS:
        raise UserError(f"--workers: {workers:,} is too many; give {MOST_WORKERS:,} or fewer, or 0 for all cores")
    flags = [f"--runner={RUNNERS[runner]}", *_parallelism(runner, workers), *beam_options]
    _refuse_unknown(flags)
    return PipelineOptions(flags)


def make_pipeline(options: PipelineOptions) -> Pipeline:
    """A pipeline with these options; where they ask for processes of the embedded runner, with processes of ours."""
    options = copy.deepcopy(options)
    direct = options.view_as(DirectOptions)
    if options.view_as(StandardOptions).runner != EMBEDDED or direct.direct_running_mode != "multi_processing":
        return Pipeline(options=options)
    direct.direct_running_mode = "in_memory"  # the mode in which the runner takes the environment that it is given
    return Pipeline(FnApiRunner(default_environment=worker_process_environment()), options)


def _parallelism(runner: str, workers: int) -> list[str]:
    if runner == "direct":
        if workers == 1:
            return ["--direct_running_mode=in_memory"]
        return ["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"]
    if runner == "flink" and workers:
        return [f"--parallelism={workers}"]
    if runner == "dataflow" and workers:
        return [f"--max_num_workers={workers}"]
    return []  # Spark takes its parallelism from the cluster


def _refuse_unknown(flags: Sequence[str]) -> None:
    parser = _BeamArgumentParser(allow_abbrev=False, add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)  # the hook by which Beam itself collects them
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        raise UserError(
            f"{unknown[0]}: no such Beam option; see the options of the runner, or write it as --name=value"
        )


@contextlib.contextmanager
def worker_environment(options: PipelineOptions) -> Iterator[None]:
    """Worker processes started inside import our packages from any directory; the embedded runner keeps silent, because
    what goes wrong in a step is raised as well."""
    before = os.environ.get("PYTHONPATH")
    root = str(Path(tokenfree.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
    logger = logging.getLogger("apache_beam")
    level = logger.level
    if options.view_as(StandardOptions).runner == EMBEDDED:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
