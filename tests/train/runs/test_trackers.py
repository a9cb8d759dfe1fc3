"""Weights & Biases and MLflow without a network: every step of a run is there, also after it went on."""

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_json_lines
from tokenfree.core.errors import UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import trackers
from tokenfree.train.runs.run import Run

MakeRecipe = Callable[..., PretrainRecipe]


class Interrupt(Exception):
    pass


def interrupt(line: Any) -> None:
    if line["step"] == 5:
        raise Interrupt


def ids(run: Path, name: str) -> list[str]:
    lines = read_json_lines(run / "events.jsonl")
    return [line["id"] for line in lines if line["event"] == "tracker" and line["tracker"] == name]


def test_mlflow(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "run"
    recipe = make_recipe(log_to=["mlflow"])
    with pytest.raises(Interrupt):
        pretrain(recipe, corpus, str(run), progress=interrupt)
    pretrain(recipe, corpus, str(run))

    (number,) = ids(run, "mlflow")
    client = mlflow.MlflowClient(tracking_uri=(run / "mlruns").as_uri())
    found = client.get_run(number)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.params["model.trunk.layers"] == "1"
    steps = {metric.step: metric.value for metric in client.get_metric_history(number, "loss")}
    assert steps == {
        line["step"]: line["loss"] for line in read_json_lines(run / "metrics.jsonl") if "loss" in line
    }
    assert {metric.step for metric in client.get_metric_history(number, "validation_loss")} == {4, 8}

    # Params cannot be changed.
    pretrain(make_recipe(log_to=["mlflow"], micro_batch=4), corpus, str(run), extend_to=10)
    assert ids(run, "mlflow") == [number]
    assert client.get_run(number).data.params["train.steps"] == "8"
    assert {metric.step for metric in client.get_metric_history(number, "loss")} == set(range(1, 11))


def test_wandb_offline(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the extra tracking")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    pretrain(make_recipe(log_to=["wandb"]), corpus, str(run))
    (number,) = ids(run, "wandb")
    (log,) = (run / "wandb").glob(f"offline-run-*/run-{number}.wandb")
    until = time.monotonic() + 60  # the writer is a process of its own, which a busy machine keeps waiting
    while b"validation_loss" not in log.read_bytes() and time.monotonic() < until:
        time.sleep(0.2)
    assert b"validation_loss" in log.read_bytes()


def test_a_tracker_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"train.log_to: wandb is not installed; run pip install '/.*\[tracking\]'"
    ):
        trackers.check(("wandb",))


class Broken:
    id = "7"

    def log(self, step: int, values: Any) -> None:
        raise ConnectionError("no route to host")

    def close(self, *, failed: bool) -> None:
        raise AssertionError("it was left out")


def test_a_tracker_that_fails_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers.KINDS, "wandb", lambda *arguments: Broken())
    monkeypatch.setattr(trackers, "check", lambda names: None)
    seen: list[Any] = []
    with trackers.tracked(("wandb",), Run(tmp_path), {}, seen.append) as take:
        assert take is not None
        for step in (1, 2):
            take({"step": step, "loss": 1.0})
    assert [line.get("event") for line in seen] == [None, "tracker_lost", None]
    assert "no route to host" in seen[1]["message"]


@pytest.mark.parametrize("answers", ["refuses", "never"])
def test_tracked_goes_on_without_a_server(
    answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs the extra tracking")
    monkeypatch.setattr(trackers, "_SECONDS", 3.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers == "never":
            server.listen()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        seen: list[Any] = []
        began = time.monotonic()
        with trackers.tracked(("mlflow",), Run(tmp_path), {"a": 1}, seen.append) as take:
            take({"step": 1, "loss": 1.0})
    assert time.monotonic() - began < 20
    lost, line = seen
    assert (lost["event"], line["step"]) == ("tracker_lost", 1)
    assert re.fullmatch(
        r"warning: mlflow gets no more metrics \(.+\); metrics.jsonl has all", lost["message"]
    )


def test_a_tracker_that_stops_answering_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Broken):
        def log(self, step: int, values: Any) -> None:
            if step == 2:
                time.sleep(5)

    monkeypatch.setattr(trackers, "_SECONDS", 0.2)
    monkeypatch.setitem(trackers.KINDS, "wandb", lambda *arguments: Silent())
    seen: list[Any] = []
    began = time.monotonic()
    with trackers.tracked(("wandb",), Run(tmp_path), {}, seen.append) as take:
        for step in (1, 2, 3):
            take({"step": step, "loss": 1.0})
    assert time.monotonic() - began < 3
    assert [line.get("event") for line in seen] == [None, None, "tracker_lost", None]
    assert "no answer within 0.2 s" in seen[2]["message"]


def test_trackers_get_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []

    class Listening(Broken):
        def log(self, step: int, values: Any) -> None:
            logged.append((step, values))

        def close(self, *, failed: bool) -> None:
            pass

    monkeypatch.setitem(trackers.KINDS, "wandb", lambda *arguments: Listening())
    monkeypatch.setattr(trackers, "check", lambda names: None)
    with trackers.tracked(("wandb",), Run(tmp_path), {}, lambda line: None) as take:
        assert take is not None
        take(
            {"step": 1, "loss": 1.5, "accuracy": float("nan"), "gradient_norm": float("inf"), "note": "geese"}
        )
    assert logged == [(1, {"loss": 1.5})]
