"""A Prometheus on this machine can read how far a command is, while it works and where it is asked for."""

import os
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.train.listening import addresses
from tests.workflows.watching.commands import tiny_pretraining
from tokenfree.pipelines.progress import Progress
from tokenfree.preprocess.common.errors import UserError
from tokenfree.train import pretrain
from tokenfree.workflows import cli
from tokenfree.workflows.watching.figures import Figures, PreprocessFigures, TrainingFigures
from tokenfree.workflows.watching.prometheus import served

STEP = {"step": 1, "loss": 4.5, "characters": 600, "seconds": 0.5, "utilisation": 0.25}


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def scraped(port: int) -> dict[str, float]:
    """What Prometheus reads, by the name of a sample with the value of its label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {"/".join([each.name, *each.labels.values()]): each.value for of in families for each in of.samples}


def served_once(figures: Figures) -> dict[str, float]:
    """What is served of `figures`."""
    port = free_port()
    with served(figures, port):
        return scraped(port)


def test_figures_of_training() -> None:
    figures = TrainingFigures(100)
    assert set(served_once(figures)) == {
        "tokenfree_train_steps",
        "tokenfree_train_worker_restarts_total",
        "tokenfree_train_seconds_since_last_step",
    }
    assert figures.hear(STEP)
    assert figures.hear({**STEP, "step": 2, "loss": 4.0, "seconds": 1.5, "utilisation": 0.75})
    assert figures.hear({"step": 2, "validation_loss": 4.25})
    assert not figures.hear({"event": "worker_lost", "step": None, "ranks": [1]})
    told = served_once(figures)
    assert 0 <= told.pop("tokenfree_train_seconds_since_last_step") < 60
    assert told == {
        "tokenfree_train_steps": 100,
        "tokenfree_train_step": 2,
        "tokenfree_train_loss": 4.0,
        "tokenfree_train_validation_loss": 4.25,
        "tokenfree_train_characters_per_second": 600,
        "tokenfree_train_utilisation_ratio": 0.5,
        "tokenfree_train_worker_restarts_total": 1,
    }


def test_figures_of_preprocessing() -> None:
    figures = PreprocessFigures()
    assert served_once(figures)["tokenfree_preprocess_splits"] == 0
    reading = Progress("read", 1, 3, 5_000, 4_000, failed=2, dropped={"redirect": 7, "short": 1})
    assert figures.hear(reading)
    assert not figures.hear(reading)  # shown again: nothing went on
    told = served_once(figures)
    assert told.pop("tokenfree_preprocess_seconds_since_last_progress") < 60
    expected = {
        "tokenfree_preprocess_splits_done": 1,
        "tokenfree_preprocess_splits": 3,
        "tokenfree_preprocess_shards_done": 0,
        "tokenfree_preprocess_shards": 0,
        "tokenfree_preprocess_characters": 4_000,
        "tokenfree_preprocess_failed_pages": 2,
        "tokenfree_preprocess_dropped_pages/redirect": 7,
        "tokenfree_preprocess_dropped_pages/short": 1,
    }
    assert told == expected
    figures.hear(Progress("build", 2, 4, 0, 3_000))
    told = served_once(figures)
    assert told["tokenfree_preprocess_splits_done"] == 3
    assert (told["tokenfree_preprocess_shards_done"], told["tokenfree_preprocess_shards"]) == (2, 4)


def test_the_port_is_free_again_afterwards() -> None:
    port = free_port()
    for _ in range(2):
        with served(TrainingFigures(1), port):
            assert scraped(port)
    with pytest.raises(OSError, match="refused"):
        scraped(port)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none(port: int) -> None:
    with (
        pytest.raises(UserError, match=f"--metrics-port {port}: give a port from 1 to 65535"),
        served(TrainingFigures(1), port),
    ):
        raise AssertionError


def test_a_run_serves_while_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, seen = free_port(), list[dict[str, float]]()
    real = pretrain.pretrain

    def looked_at(*given: Any, progress: Any, **more: Any) -> Any:
        def show(line: Any) -> None:
            progress(line)
            if line.get("step") == 5 and "loss" in line:
                seen.append(scraped(port))
                assert addresses(os.getpid()) == ["127.0.0.1"]

        return real(*given, progress=show, **more)

    monkeypatch.setattr(pretrain, "pretrain", looked_at)
    command = tiny_pretraining(tmp_path)
    assert cli.main([*command, "--metrics-port", str(port)]) == 0
    assert seen[0]["tokenfree_train_step"] == 5
    assert seen[0]["tokenfree_train_steps"] == 8
    assert seen[0]["tokenfree_train_validation_loss"] > 0
    assert addresses(os.getpid()) == []
    with socket.create_server(("127.0.0.1", port)):
        capsys.readouterr()
        command[-1] = str(tmp_path / "other")
        assert cli.main([*command, "--metrics_port", str(port)]) == 2
    said = f"tokenfree: --metrics-port {port}: it is taken; give another port of this machine\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "other").exists()
