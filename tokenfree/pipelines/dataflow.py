"""The job that a graph would be on Dataflow, as Dataflow would be told of it; nothing is sent, no bucket asked.

Needs apache-beam[gcp]. What Beam would upload beside the description (the graph, packages) is only listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions, TestOptions
from apache_beam.pipeline import Pipeline

from tokenfree.preprocess.common.errors import UserError


@dataclass(frozen=True)
class DataflowJob:
    """`description` is the body of the request that creates the job, `steps` are those of the graph, `graph` is what is
    put beside it: Beam's own form of the pipeline, with its code."""

    description: dict[str, Any]
    steps: tuple[str, ...]
    graph: bytes

    @property
    def workers(self) -> dict[str, Any]:
        """Of the description: image, machine and number of the workers."""
        return self.description["environment"]["workerPools"][0]


def is_dataflow(options: PipelineOptions) -> bool:
    """Whether the options are those of Dataflow."""
    return options.view_as(StandardOptions).runner == "DataflowRunner"


def describe_dataflow_job(options: PipelineOptions, build: Callable[[Pipeline], None]) -> DataflowJob:
    """The job that would be created.

    Args:
        options: of the runner.
        build: adds the steps to a pipeline.

    Raises:
        UserError: an option that Dataflow needs is missing, or Beam's extra for Google Cloud is.
    """
    try:
        from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient
    except ImportError:
        raise UserError("--runner dataflow: needs Beam's part for it; pip install 'tokenfree[dataflow]'") from None
    options = PipelineOptions.from_dictionary(options.get_all_options(drop_default=True))
    cloud = options.view_as(GoogleCloudOptions)
    for name in ("project", "region", "temp_location"):
        if not getattr(cloud, name):
            raise UserError(f"--runner dataflow: the option {name} is missing; give -- --{name}=VALUE or a --profile")
    cloud.staging_location = cloud.staging_location or cloud.temp_location
    cloud.no_auth = True  # or the graph cannot be made without credentials
    options.view_as(TestOptions).dry_run = True

    class Client(DataflowApplicationClient):
        """Beam's own, which uploads nothing."""

        def stage_file(self, *_: Any, **__: Any) -> None:
            """Would write into the bucket."""

        def _gcs_file_copy(self, *_: Any, **__: Any) -> None:
            """Would copy a package into the bucket."""

    pipeline = Pipeline(options=options)
    build(pipeline)
    result: Any = pipeline.run()
    job = result.job
    Client(options, job.root_staging_location).create_job_description(job)
    transforms = job.proto_pipeline.components.transforms
    top = [name for root in job.proto_pipeline.root_transform_ids for name in transforms[root].subtransforms]
    steps = tuple(transforms[name].unique_name for name in top)
    return DataflowJob(json.loads(job.json()), steps, job.proto_pipeline.SerializeToString())
