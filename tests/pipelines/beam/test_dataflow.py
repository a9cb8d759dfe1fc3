"""The graph and the options of a job of Dataflow, and its flex template."""

import json
import runpy
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, WorkerOptions
from apache_beam.pipeline import Pipeline

from tests.conftest import REPOSITORY
from tokenfree.pipelines.beam import runner_options
from tokenfree.pipelines.transforms import Preprocess
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.stages import STAGES

SECRET = "not-to-be-told-to-anyone"


def test_no_secret_and_nothing_of_main_is_in_the_graph(
    monkeypatch: pytest.MonkeyPatch, make_config: Any
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    options = runner_options("dataflow", 50, ["--project=geese", "--temp_location=gs://geese-data/tmp"])
    workers = options.view_as(WorkerOptions)
    assert (workers.max_num_workers, workers.machine_type, workers.disk_size_gb) == (50, "n2-highmem-2", 100)
    pipeline = Pipeline("FnApiRunner", PipelineOptions())
    config = make_config("gs://geese-data/books")
    job = PreprocessJob("gs://geese-data/en", config, "f", "r", "s", "i")
    pipeline | Preprocess(config, job.url, job)  # pyright: ignore[reportUnusedExpression]
    graph: Any = pipeline.to_runner_api()
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    stages = {f"Preprocess/Stages/{stage.name}/Perform" for stage in STAGES}
    assert stages < names
    hints = [environment.resource_hints for environment in graph.components.environments.values()]
    assert any(value == b"1000000000" for hint in hints for value in hint.values())
    assert SECRET.encode() not in graph.SerializeToString()
    assert b"__main__" not in graph.SerializeToString()


def test_a_flex_template_starts_the_command_with_its_parameters() -> None:
    folder = REPOSITORY / "infra" / "beam" / "dataflow-template"
    launch = runpy.run_path(str(folder / "launch.py"))
    given = [
        "--wikipedia=gs://geese/a.bz2,gs://geese/b.bz2",
        "--output=gs://geese/en",
        "--workers=9",
        "--job_name=x",
    ]
    options = [
        "--wikipedia",
        "gs://geese/a.bz2",
        "gs://geese/b.bz2",
        "--output",
        "gs://geese/en",
        "--workers",
        "9",
    ]
    assert launch["command"](given) == ["preprocess", *options, "--runner", "dataflow", "--", "--job_name=x"]
    parameters = json.loads((folder / "metadata.json").read_text())["parameters"]
    names = {parameter["name"] for parameter in parameters}
    assert set(launch["OURS"]) < names
    runner_options("dataflow", None, [f"--{name}=x" for name in names - set(launch["OURS"])])
