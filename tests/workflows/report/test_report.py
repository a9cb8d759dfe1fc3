"""The report: one page that stands alone, from the files of runs, sweeps and data directories."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.runs.hashes import verify_folder, write_hashes
from tokenfree.train.sweep.control.history import Event
from tokenfree.train.sweep.results.tables import write
from tokenfree.train.sweep.results.trial_result import TrialResult
from tokenfree.workflows.report.figures.drawing import number_ids
from tokenfree.workflows.report.figures.line_figures import smoothed
from tokenfree.workflows.report.write import write_report

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}
RATE, NAME = "model.downsampler.rate", "model.trunk.attention.name"


class Page(HTMLParser):
    """A page by its parts; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.headings: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.numbers: dict[str, str] = {}
        self.text = ""
        self._meaning = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self._row: list[str] = []
        if tag in ("caption", "td", "th", "h2", "h3", "dt", "dd"):
            self._text = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._mark(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "caption":
            self._rows = self.tables.setdefault(self._text, [])
        elif tag in ("td", "th"):
            self._row.append(self._text)
        elif tag == "tr":
            self._rows.append(self._row)
        elif tag in ("h2", "h3"):
            self.headings.append(self._text)
        elif tag == "dt":
            self._meaning = self._text
        elif tag == "dd":
            self.numbers[self._meaning] = self._text

    def handle_data(self, data: str) -> None:
        self.text += data
        self._text = getattr(self, "_text", "") + data

    def _mark(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        named = {name: value or "" for name, value in attrs}
        self.ids += [named["id"]] if "id" in named else []
        self.targets += [value[1:] for name, value in named.items() if name.endswith("href")]
        self.targets += re.findall(r"url\(#([^)]+)\)", " ".join(named.values()))


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Page]:
    """Writes the page of these folders and reads it."""

    def make(*folders: Path) -> Page:
        path = write_report([str(folder) for folder in folders], str(tmp_path / "out" / "report.html"))
        assert list(path.parent.iterdir()) == [path]
        page = Page(path.read_text(encoding="utf-8"))
        assert "script" not in page.seen
        assert len(set(page.ids)) == len(page.ids)
        assert set(page.targets) <= set(page.ids)
        return page

    return make


def make_run(folder: Path, *, batch: int = 1, lost: bool = False, **train: Any) -> Path:
    """A run of 100 steps whose loss falls from 7 to 5, with validations at 50 and 100."""
    folder.mkdir()
    steps = [{"step": s, "loss": 7 - s / 50, "characters": 5000 * batch, "seconds": 0.5} for s in range(1, 101)]
    held_out = [{"step": s, "validation_loss": 7.1 - s / 50, "validation_accuracy": 0.1} for s in (50, 100)]
    text = "".join(json.dumps(line) + "\n" for line in steps + held_out) + '{"step": 101, "lo'
    (folder / "metrics.jsonl").write_text(text)
    events: list[dict[str, Any]] = [{"event": "start", "step": 0, "time": 0.0}]
    if lost:
        events.append({"event": "worker_lost", "step": None, "time": 60.0, "message": "worker 1 <was> killed"})
        events.append({"event": "resume", "step": 40, "time": 65.0, "message": "goes on from step 40"})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "config.yaml").write_text(yaml.safe_dump({"recipe": {"train": {"steps": 100, "length": 240, **train}}}))
    (folder / "result.json").write_text(json.dumps({"unigram_entropy": 6.2, "symbol": "subword"}))
    return folder


def make_trial(setting: int, steps: int, loss: float, state: str = "finished", **more: Any) -> TrialResult:
    """A trial whose loss came down to `loss` at `steps` from one more at 5."""
    values = more.pop("values", {RATE: 2 + setting, NAME: ("full", "multi_scale")[setting % 2]})
    speed = 1000.0 * (setting + 1)
    same = {"validation_accuracy": 0.1, "parameters": 10_000, "characters_per_second": speed}
    reports = [
        {"step": step, "validation_loss": loss + (steps - step) / 5, "train_seconds": 1000 * step / speed, **same}
        for step in range(5, steps + 1, 5)
    ]
    return TrialResult(f"trial_{setting:03d}", values, state, reports, setting=setting, seed=0, **more)


def events(trials: Sequence[TrialResult], skipped: Mapping[str, int]) -> Iterator[Event]:
    """The journal of a sweep of these trials, each of which has two reports when it has finished."""
    settings = {trial.setting: trial.values for trial in trials}
    yield {"event": "start", "settings": len(settings)}
    for reason, number in skipped.items():
        for _ in range(number):
            yield {"event": "skip", "values": {}, "reasons": [reason]}
    for setting, values in settings.items():
        yield {"event": "propose", "setting": setting, "values": dict(values)}
    for trial in trials:
        if trial.state != "waiting":
            yield {"event": "begin", "trial": trial.name}
        for number, report in enumerate(trial.reports, 1):
            verdict = "stop" if trial.state == "stopped" and report is trial.reports[-1] else "go"
            yield {"event": "report", "trial": trial.name, "verdict": verdict, "report": {"report": number, **report}}
        for _ in range(2 * (trial.state == "failed")):
            yield {"event": "failure", "trial": trial.name, "error": trial.error}


def make_sweep(folder: Path, trials: list[TrialResult], skipped: dict[str, int] | None = None) -> Path:
    """The folder of a sweep with these trials, which has ended where all of them have."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    space = {key: {"choice": [1, 2]} for trial in trials for key in trial.values}
    recipe = {
        "base": {"model": {"width": 96}},
        "space": space,
        "budget": {"steps": 10},
        "objectives": ["validation_loss"],
        "seeds": 1 + max((trial.seed or 0 for trial in trials), default=0),
        "reports": 2,
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump({"recipe": recipe}))
    lines = (json.dumps(event) + "\n" for event in events(trials, skipped or {}))
    (folder / "journal.jsonl").write_text("".join(lines))
    if all(trial.state in ("finished", "stopped", "failed") for trial in trials):
        sweep: Any = SimpleNamespace(space=space, best_recipe=lambda values: {"values": dict(values)})
        write(folder, sweep, trials, skipped=skipped)
    return folder


def test_a_run_says_loss_throughput_and_restarts(report: Callable[..., Page], tmp_path: Path) -> None:
    page = report(make_run(tmp_path / "run<1>", lost=True))
    assert page.headings == ["Pretraining · run<1>", "Starts, restarts and warnings", "What it was made with"]
    assert page.numbers == {
        "held-out loss (nats per subword)": "5.100", "unigram entropy of the targets": "6.200", "of 100 steps": "100",
        "characters read": "500 k", "characters per second (median)": "10 k", "in steps": "50.0 s", "restart": "1",
        "Trained": "1970-01-01 00:00 to 1970-01-01 00:01 UTC", "Versions": "not recorded", "Machine": "not recorded",
    }  # fmt: skip
    assert page.seen.count("svg") == 3  # loss, throughput, accuracy
    assert page.tables["Events"][1:] == [
        ["1970-01-01 00:01:00", "worker lost", "–", "worker 1 <was> killed"],
        ["1970-01-01 00:01:05", "resume", "40", "goes on from step 40"],
    ]
    assert page.tables["Validations"][1] == ["50", "6.1000", "0.1000"]
    assert ["train.length", "240"] in page.tables["Settings"]


def test_runs_are_compared_by_the_characters_that_they_read(report: Callable[..., Page], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    large = make_run(tmp_path / "a" / "run", batch=2, global_batch=16)
    page = report(large, make_run(tmp_path / "b" / "run", global_batch=8))
    assert page.headings[:2] == ["Runs compared", "Settings that differ"]
    header, *rows = page.tables["Runs"]
    assert header[4] == "loss at 500 k characters"
    assert [row[0] for row in rows] == ["a/run", "b/run"]
    assert [row[3] for row in rows] == ["5.1000", "5.1000"]  # at the end
    assert [row[4] for row in rows] == ["6.1000", "5.1000"]  # where both had read as much
    assert page.tables["Only these keys"][1:] == [["train.global_batch", "16", "8"]]


def test_a_run_that_just_began(report: Callable[..., Page], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("")
    (run / "result.json").unlink()
    page = report(run, run)
    assert "No step has been made yet." in page.text
    assert "(not ended)" in page.text


def test_a_sweep_says_what_is_best_and_what_it_costs(report: Callable[..., Page], tmp_path: Path) -> None:
    trials = [
        make_trial(0, 10, 4.0), make_trial(1, 10, 4.2), make_trial(2, 10, 4.5), make_trial(3, 5, 3.0, "stopped"),
        TrialResult("trial_004", {RATE: 6, NAME: "full"}, "failed", (), "ValueError: <b>no</b>", 4, 0),
    ]  # fmt: skip
    page = report(make_sweep(tmp_path / "sweep it", trials, {"rate 7 does not <divide> 240": 3}))
    assert page.numbers["best held-out loss (nats)"] == "4.000"
    assert {name: page.numbers[name] for name in ("trials", "finished", "stopped", "failed")} == {
        "trials": "5", "finished": "3", "stopped": "1", "failed": "1",
    }  # fmt: skip
    assert page.tables["Its values"][1:] == [["rate", RATE, "2"], ["attention.name", NAME, "full"]]
    assert ["characters per second", "1,000", "2,000", "0.50"] in page.tables["What it costs"]
    assert f"tokenfree pretrain '{tmp_path}/sweep it/best.yaml' --data DIR --output RUN" in page.text
    assert (
        "trial_000: held-out loss 4.0000 nats at step 10 (one seed). The next, trial_001, is 0.2000 behind" in page.text
    )
    assert page.tables["Errors"][1] == ["trial_004", "ValueError: <b>no</b>", "rate = 6, attention.name = full"]
    assert page.tables["Why"][1] == ["rate 7 does not <divide> 240", "3"]
    assert ["budget.steps", "10"] in page.tables["Settings of the sweep"]


def test_a_sweep_compares_at_equal_steps_and_at_equal_time(report: Callable[..., Page], tmp_path: Path) -> None:
    page = report(make_sweep(tmp_path / "sweep", [make_trial(0, 10, 4.0), make_trial(1, 10, 4.2)]))
    assert page.tables["Both rankings"][1:] == [
        ["trial_000", "1", "4.0000", "2", "5.0000", "-1"],  # at 5 seconds the slow one had made half of its steps
        ["trial_001", "2", "4.2000", "1", "4.2000", "+1"],
    ]
    assert [row[0] for row in page.tables["The front, slowest first"][1:]] == ["trial_000", "trial_001"]


def test_effects_are_shown_where_all_trials_got_to(report: Callable[..., Page], tmp_path: Path) -> None:
    values = [{RATE: 2}, {RATE: 2}, {RATE: 4}, {RATE: 4}, {RATE: 6}]
    losses = (4.0, 4.2, 5.0, 5.0, 6.0)
    trials = [make_trial(n, 10, loss, values=v) for n, (v, loss) in enumerate(zip(values, losses, strict=True))]
    stopped = make_trial(5, 5, 6.0, "stopped", values={RATE: 6})
    page = report(make_sweep(tmp_path / "sweep", [*trials, stopped]))
    rows = page.tables["Mean loss by value"]
    assert rows[1:4] == [["rate", "2", "2", "5.1000 ± 1.2706"], ["rate", "4", "2", "6.0000 ± 0.0000"],
                         ["rate", "6", "2", "6.5000 ± 6.3531"]]  # fmt: skip
    assert rows[5:] == [["rate", "2", "2", "4.1000 ± 1.2706"], ["rate", "4", "2", "5.0000 ± 0.0000"],
                        ["rate", "6", "1", "6.0000"]]  # fmt: skip
    assert "What each knob does in the end" in page.headings
    assert "Losses at step 5, to which all 6 of these trials got" in page.text
    assert "Importance" not in page.headings  # of a single knob


def test_a_sweep_with_several_knobs_has_all_its_pictures(report: Callable[..., Page], tmp_path: Path) -> None:
    page = report(make_sweep(tmp_path / "sweep", [make_trial(n, 10, 4.0 + n / 10) for n in range(8)]))
    assert page.headings[1:] == [
        "Best setting", "Quality against cost", "What each knob does", "Importance", "All settings at once",
        "Learning curves", "Equal steps and equal time", "All trials", "Settings", "What it was made with",
    ]  # fmt: skip
    assert page.seen.count("svg") == 1 + 2 + 1 + 1 + 2 + 1
    assert [row[0] for row in page.tables["Importance of each knob"][1:]] == ["rate", "attention.name"]


def test_seeds_have_means_and_intervals(report: Callable[..., Page], tmp_path: Path) -> None:
    losses = ((4.0, 4.1, 4.2), (5.0, 5.2, 5.4))
    trials = [
        TrialResult(
            f"trial_{s:03d}_seed_{seed}", {RATE: 2 + s}, "finished", make_trial(s, 10, loss).reports, "", s, seed
        )
        for s, found in enumerate(losses)
        for seed, loss in enumerate(found)
    ]
    page = report(make_sweep(tmp_path / "sweep", trials))
    assert page.tables["Settings over seeds"][1:] == [
        ["setting_000", "3", "4.1000 ± 0.2484", "4.0000, 4.1000, 4.2000", "2"],
        ["setting_001", "3", "5.2000 ± 0.4968", "5.0000, 5.2000, 5.4000", "3"],
    ]
    assert "setting_001, is 1.1000 behind, more than the spread over seeds explains" in page.text
    failed = [*trials[:5], TrialResult("trial_001_seed_2", {RATE: 3}, "failed", (), "no", 1, 2)]
    page = report(make_sweep(tmp_path / "sweep", failed))
    assert "No other setting got there with 3 seeds." in page.text
    assert [row[0] for row in page.tables["The front, slowest first"][1:]] == ["setting_000"]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "There is none: no trial has reported yet."),
        ([make_trial(0, 10, 4.0, values={RATE: 2})], "No other setting got so far."),
        ([TrialResult("trial_000", {RATE: 2}, "failed", (), "no", 0, 0)], "There is none: every trial failed."),
        ([make_trial(n, 10, float("nan"), values={RATE: n}) for n in (1, 2)], "There is none: no loss is a number."),
        ([make_trial(0, 10, 4.0, values={})], "No other setting got so far."),
    ],
)
def test_sweeps_with_little_to_show(
    trials: list[TrialResult], said: str, report: Callable[..., Page], tmp_path: Path
) -> None:
    assert said in report(make_sweep(tmp_path / "sweep", trials)).text


def test_a_sweep_that_runs(report: Callable[..., Page], tmp_path: Path) -> None:
    running, waiting = make_trial(0, 5, 4.4, "running"), TrialResult("trial_001", {RATE: 2}, "waiting", (), "", 1, 0)
    page = report(make_sweep(tmp_path / "sweep", [running, waiting]))
    assert page.headings[0] == "Sweep · sweep (not ended)"
    assert (page.numbers["running"], page.numbers["waiting"]) == ("1", "1")
    assert page.tables["Trials without a report"][1] == ["trial_001", "not begun yet", "rate = 2"]
    assert "best.yaml" not in page.text


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    folders = [
        str(make_run(tmp_path / "run")),
        str(make_sweep(tmp_path / "s", [make_trial(n, 10, 4.0) for n in range(7)])),
    ]
    first = write_report(folders, str(tmp_path / "a.html")).read_text(encoding="utf-8")
    assert write_report(folders, str(tmp_path / "b.html")).read_text(encoding="utf-8") == first


def test_colours_follow_the_page_and_nothing_is_fetched(tmp_path: Path) -> None:
    path = write_report(
        [str(make_sweep(tmp_path / "s", [make_trial(n, 10, 4.0) for n in range(7)]))], str(tmp_path / "r")
    )
    page = path.read_text(encoding="utf-8")
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}", pictures)) == set()
    used = set(re.findall(r"var\(--(\w+)\)", pictures))
    assert {"ink", "line", "c1", "q1"} <= used
    light, dark = page.split("prefers-color-scheme: dark")
    assert all(f"--{name}: #" in light and f"--{name}: #" in dark for name in used)
    assert not re.search(r"(src|href)=\"(?!#)|@import|url\((?!#)", page)
    assert page.count('role="img" aria-label="') == page.count("<svg")


def test_ids_of_each_picture_are_its_own() -> None:
    svg = '<svg><path id="a"/><use xlink:href="#a"/><g clip-path="url(#a)"/></svg>'
    found = re.findall(r'(?:id="|href="#|url\(#)([^")]+)', number_ids(svg + svg))
    assert found == ["p1-a"] * 3 + ["p2-a"] * 3


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_is_nothing_we_know(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        write_report([str(tmp_path / name)], str(tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()


def test_smoothing_keeps_a_level() -> None:
    assert smoothed([1.0] * 50).tolist() == pytest.approx([1.0] * 50)
    assert smoothed([0.0] * 99 + [1.0])[-1] > 0.2


def test_a_page_inside_of_a_finished_run_is_under_its_hashes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    write_hashes(str(run))
    for _ in range(2):  # written again, it is good too
        page = write_report([str(run)], str(run / "report.html"))
        verify_folder(str(run))
    page.unlink()
    page.mkdir()
    with pytest.raises(JobError, match=r"report\.html: missing"):
        verify_folder(str(run))
