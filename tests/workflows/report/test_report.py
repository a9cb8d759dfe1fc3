"""The report: one page that stands alone, from the files of runs and sweeps."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from preprocess.errors import UserError
from train.sweep.config import SweepRecipe
from train.sweep.results import TrialResult, write
from workflows.report import write_report
from workflows.report.figures import _frontier, _smoothed

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Balanced(HTMLParser):
    """Collects tags, and fails where they do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run<1>"
    folder.mkdir()
    steps = [{"step": s, "loss": 7 - s / 50, "characters": 5000, "seconds": 0.5} for s in range(1, 101)]
    held_out = [{"step": s, "validation_loss": 7.1 - s / 50, "validation_accuracy": 0.1} for s in (50, 100)]
    text = "".join(json.dumps(line) + "\n" for line in steps + held_out) + '{"step": 101, "lo'
    (folder / "metrics.jsonl").write_text(text)
    (folder / "events.jsonl").write_text('{"event": "start"}\n{"event": "worker_lost"}\n')
    (folder / "config.yaml").write_text(yaml.safe_dump({"recipe": {"train": {"steps": 100, "length": 240}}}))
    (folder / "result.json").write_text(json.dumps({"unigram_entropy": 6.2}))
    return folder


@pytest.fixture
def sweep_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep"
    folder.mkdir()
    space = {"model.embedder.buckets": {"choice": [64, 1024, 4096]}, "train.seed": {"integer": [0, 3]}}
    trials = [
        TrialResult(
            f"trial_{i:03d}",
            {"model.embedder.buckets": (64, 1024, 4096)[i], "train.seed": i},
            state,
            [
                {
                    "step": step,
                    "validation_loss": 6 - step / 10 + i / 5,
                    "characters_per_second": 1000.0 * (i + 1),
                    "parameters": 10_000,
                    "train_seconds": 1.5,
                    "validation_accuracy": 0.1,
                }
                for step in ((5, 10) if state == "finished" else (5,) if state == "stopped" else ())
            ],
            "ValueError: no" if state == "failed" else "",
        )
        for i, state in enumerate(("finished", "stopped", "failed"))
    ]
    sweep = SweepRecipe(base={}, space={}, trials=3)
    (folder / "sweep.yaml").write_text(yaml.safe_dump({"recipe": {"space": space}}))
    sweep = SweepRecipe(base={}, space=dict.fromkeys(space, None), trials=3)  # pyright: ignore[reportArgumentType]
    write(folder, sweep, trials)
    return folder


def test_the_page_stands_alone(run_folder: Path, sweep_folder: Path, tmp_path: Path) -> None:
    path = write_report([str(run_folder), str(sweep_folder)], str(tmp_path / "out" / "report.html"))
    page = path.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.seen.count("svg") == 5  # loss and throughput; trade, learning curves and effects
    assert "script" not in parser.seen
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "run&lt;1&gt;" in page
    assert "5.100" in page  # held-out loss
    assert "6.200" in page  # unigram entropy
    assert "trial_001" in page
    assert list(path.parent.iterdir()) == [path]


def test_the_same_files_give_the_same_page(run_folder: Path, tmp_path: Path) -> None:
    first = write_report([str(run_folder)], str(tmp_path / "a.html")).read_text(encoding="utf-8")
    assert write_report([str(run_folder)], str(tmp_path / "b.html")).read_text(encoding="utf-8") == first


def test_several_runs_are_compared(run_folder: Path, tmp_path: Path) -> None:
    page = write_report([str(run_folder), str(run_folder)], str(tmp_path / "r.html")).read_text(encoding="utf-8")
    assert "Runs compared" in page


def test_a_run_that_just_began(run_folder: Path, tmp_path: Path) -> None:
    (run_folder / "metrics.jsonl").write_text("")
    (run_folder / "result.json").unlink()
    assert write_report([str(run_folder)], str(tmp_path / "r.html")).stat().st_size > 1000


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_is_nothing_we_know(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        write_report([str(tmp_path / name)], str(tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()


def test_frontier_and_smoothing() -> None:
    points = [(1, 5.0), (2, 4.0), (3, 4.5), (4, 6.0)]
    trials = [{"characters_per_second": speed, "validation_loss": loss} for speed, loss in points]
    assert [trial["characters_per_second"] for trial in _frontier(trials)] == [2, 3, 4]
    assert _smoothed([1.0] * 50).tolist() == pytest.approx([1.0] * 50)
