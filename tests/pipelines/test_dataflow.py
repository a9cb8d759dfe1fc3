"""The graph as a job of Dataflow, translated without a network; needs Beam's extra for Google Cloud."""

import json
import runpy
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.pipelines.beam import DataflowJob, build_graph, describe_dataflow_job, runner_options
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.workflows.cli import main

IMAGE = "europe-west1-docker.pkg.dev/geese/images/tokenfree-beam:0.1.0"
SECRET = "not-to-be-told-to-anyone"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_config: Any) -> DataflowJob:
    """The real graph with the options of our profile; secrets are where people have them."""
    pytest.importorskip(
        "apache_beam.runners.dataflow.internal.apiclient", reason="needs the extra dataflow", exc_type=ImportError
    )
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    wheel = tmp_path / "tokenfree-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tokenfree/__init__.py", "")
    given = ["--project=geese", "--temp_location=gs://geese-data/tmp", f"--sdk_container_image={IMAGE}"]
    options = runner_options("dataflow", 50, [*given, f"--extra_package={wheel}"])
    preprocess = PreprocessJob("gs://geese-data/en", make_config("gs://geese-data/books"), "f", "r", "s", "i")
    return describe_dataflow_job(options, lambda pipeline: build_graph(pipeline, preprocess))


def test_steps_image_workers_and_wheel(job: DataflowJob) -> None:
    assert job.steps[0] == "Start"
    assert {"Hash inputs, read and clean splits", "Train vocabulary, plan shards", "Build a shard"} < set(job.steps)
    assert job.steps[-1] == "Reconcile and finish"
    assert job.workers["sdkHarnessContainerImages"][0]["containerImage"] == IMAGE
    assert job.workers["machineType"] == "n2-highmem-2"
    assert job.workers["autoscalingSettings"]["maxNumWorkers"] == 50
    assert job.workers["diskSizeGb"] == 100
    assert job.workers["ipConfiguration"] == "WORKER_IP_PRIVATE"
    packages = {package["name"] for package in job.workers["packages"]}
    assert "tokenfree-0.1.0-py3-none-any.whl" in packages
    assert "/geese-data/tmp/" in job.description["environment"]["tempStoragePrefix"]


def test_no_secret_and_nothing_of_main_is_in_it(job: DataflowJob) -> None:
    assert SECRET not in json.dumps(job.description)
    assert SECRET.encode() not in job.graph
    assert b"__main__" not in job.graph


def test_the_command_shows_it_and_writes_it(
    job: DataflowJob, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "job.json"
    options = ["--project=geese", "--temp_location=gs://geese-data/tmp", f"--sdk_container_image={IMAGE}"]
    command = ["preprocess", "--books", str(corpus), "--output", str(tmp_path / "out"), "--runner", "dataflow"]
    assert main([*command, "--workers", "9", "--dry-run", "--", *options, f"--dataflow_job_file={target}"]) == 0
    said = capsys.readouterr().out
    assert (
        f"to submit   {len(job.steps)} steps to Dataflow in europe-west1, on up to 9 n2-highmem-2, image {IMAGE}"
        in said
    )
    assert json.loads(target.read_text())["environment"]["workerPools"][0]["machineType"] == "n2-highmem-2"


@pytest.mark.parametrize("missing", ["project", "temp_location"])
def test_what_dataflow_needs_is_asked_for(missing: str) -> None:
    pytest.importorskip(
        "apache_beam.runners.dataflow.internal.apiclient", reason="needs the extra dataflow", exc_type=ImportError
    )
    given = {"project": "geese", "temp_location": "gs://geese-data/tmp"}
    options = runner_options(
        "dataflow", None, [f"--{name}={value}" for name, value in given.items() if name != missing]
    )
    with pytest.raises(UserError, match=f"the option {missing} is missing"):
        describe_dataflow_job(options, lambda _: None)


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam.runners.dataflow.internal.apiclient", None)
    with pytest.raises(UserError, match=r"pip install '\.\[dataflow\]'"):
        describe_dataflow_job(runner_options("dataflow", None), lambda _: None)


def test_a_flex_template_starts_the_command_with_its_parameters() -> None:
    folder = REPOSITORY / "infra" / "beam" / "dataflow-template"
    launch = runpy.run_path(str(folder / "launch.py"))
    given = ["--wikipedia=gs://geese/a.bz2,gs://geese/b.bz2", "--output=gs://geese/en", "--workers=9", "--job_name=x"]
    options = ["--wikipedia", "gs://geese/a.bz2", "gs://geese/b.bz2", "--output", "gs://geese/en", "--workers", "9"]
    assert launch["command"](given) == ["preprocess", *options, "--runner", "dataflow", "--", "--job_name=x"]
    parameters = json.loads((folder / "metadata.json").read_text())["parameters"]
    names = {parameter["name"] for parameter in parameters}
    assert set(launch["OURS"]) < names
    runner_options("dataflow", None, [f"--{name}=x" for name in names - set(launch["OURS"])])
