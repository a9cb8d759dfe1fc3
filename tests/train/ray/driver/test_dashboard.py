"""What Ray shows of a job that trains: its recipe, its run on the page Train, and gauges on the metrics endpoint."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.conftest import REPOSITORY
from tests.train.conftest import RECIPE
from tokenfree.core.settings import merge
from tokenfree.train.ray.driver import GAUGES
from tokenfree.workflows.cluster import local


def wait_for(read: Callable[[], Any], seconds: float = 240) -> Any:
    until = time.monotonic() + seconds
    while not (value := read()):
        assert time.monotonic() < until
        time.sleep(1)
    return value


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_dashboard_and_the_metrics_endpoint_show_a_run(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, run = tmp_path / "recipe.yaml", str(tmp_path / "run")
    train = {"steps": 100_000, "checkpoint_every_steps": 1000, "validate_every_steps": 1000}
    recipe.write_text(yaml.safe_dump(merge(RECIPE, {"train": train})))
    # Short, for the paths of sockets.
    with tempfile.TemporaryDirectory(prefix="tfd-", dir="/tmp") as folder:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            monkeypatch.delenv(name)
        environment = {"TOKENFREE_CACHE": folder, "RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled",
                       "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        cluster = local.start(1, 2)
        try:
            submit = [
                "cluster",
                "submit",
                "--no-wait",
                "--address",
                cluster.address,
                "--send",
                str(recipe),
                "--",
            ]
            command = ["pretrain", "recipe.yaml", "--data", corpus, "--output", run, "--workers", "2"]
            subprocess.run([sys.executable, "-P", "-m", "tokenfree", *submit, *command], check=True)

            def validated() -> bool:
                path = Path(run, "metrics.jsonl")
                return path.is_file() and "validation_loss" in path.read_text()

            wait_for(validated)
            (job,) = requests.get(f"{cluster.address}/api/jobs/").json()
            assert job["metadata"] == {"recipe": "recipe.yaml", "output": run}
            (shown,) = requests.get(f"{cluster.address}/api/train/v2/runs/v1").json()["train_runs"]
            assert shown["status"] == "RUNNING"
            config = shown["run_settings"]["train_loop_config"]
            assert (config["run"], config["recipe"]["train"]["steps"]) == (run, 100_000)
            assert len(shown["attempts"][0]["workers"]) == 2

            found = json.loads(Path(cluster.folder, "0", "prom_metrics_service_discovery.json").read_text())
            targets = [target for group in found for target in group["targets"]]
            pattern = re.compile(rf'^ray_tokenfree_(\w+){{.*run="{re.escape(run)}".*}} (\S+)$', re.MULTILINE)

            def gauges() -> dict[str, float] | None:
                text = "\n".join(requests.get(f"http://{target}/metrics").text for target in targets)
                values = {name: float(value) for name, value in pattern.findall(text)}
                return values if values.keys() == GAUGES.keys() else None

            values = wait_for(gauges)
            assert values["restarts"] == 0
            assert 0 < values["loss"] < 10
            assert 0 < values["validation_loss"] < 10
            assert 0 < values["utilisation"] < 2
            assert values["characters_per_second"] > 10
        finally:
            local.stop(cluster)
