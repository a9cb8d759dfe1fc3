"""The report: one page that stands alone, from the files of runs, sweeps and data directories."""

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.train.sweep.conftest import trial_state
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.runs.hashes import verify_folder, write_hashes
from tokenfree.train.sweep.history import Event, TrialState, journal_line
from tokenfree.train.sweep.recipe import LOSS
from tokenfree.train.sweep.results import write
from tokenfree.workflows.report.load import RunRecord, SweepRecord, load
from tokenfree.workflows.report.page import write_report
from tokenfree.workflows.report.runs import Predictions, comparison_section, run_section
from tokenfree.workflows.report.sweeps import SweepView

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}
MACHINE = {
    "cores": 2,
    "memory_gib": 23.5,
    "accelerators": [],
    "system": "Linux-6.1-x86_64",
    "python": "3.11.7",
}
ATTEMPT = {
    "time": "2026-11-22T16:44:35Z", "command": "tokenfree pretrain tiny --data 'a b'", "commit": "0cb59b8f6f31-dirty",
    "machine": MACHINE, "packages": {"tokenfree": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
}  # fmt: skip
USES, PROBE = "Does the model use its context?", "Context probe"
LEARNING_RATE = "train.learning_rate"
RATE, NAME = "model.downsampler.rate", "model.trunk.attention.name"


class Page(HTMLParser):
    """A page by its parts; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.marked: list[tuple[str, list[str]]] = []  # tags with the names of their attributes
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.headings: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.cards: dict[str, list[str]] = {}  # title: value and note
        self.figures: list[str] = []  # what they show
        self.text = ""
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
            self._card = self.cards.setdefault(self._text, [])
        elif tag == "dd":
            self._card.append(self._text)

    def handle_data(self, data: str) -> None:
        self.text += data
        self._text = getattr(self, "_text", "") + data

    def _mark(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.marked.append((tag, [name for name, _ in attrs]))
        named = {name: value or "" for name, value in attrs}
        self.ids += [named["id"]] if "id" in named else []
        self.targets += [named["href"].removeprefix("#")] if "href" in named else []
        if tag == "img":
            assert named["src"].startswith("data:image/svg+xml;base64,")
            ElementTree.fromstring(base64.b64decode(named["src"].partition(",")[2]))
            self.figures.append(named["alt"])


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Page]:
    """Writes the page of these folders and reads it."""

    def make(*folders: Path) -> Page:
        path = write_report([str(folder) for folder in folders], str(tmp_path / "out" / "report.html"))
        assert list(path.parent.iterdir()) == [path]
        page = Page(path.read_text(encoding="utf-8"))
        assert not {"script", "link"} & set(page.seen)
        assert len(set(page.ids)) == len(page.ids)
        assert set(page.targets) <= set(page.ids)
        return page

    return make


def make_run(folder: Path, *, batch: int = 1, lost: bool = False, **train: Any) -> Path:
    """A run of 100 steps whose loss falls from 7 to 5, with validations at 50 and 100."""
    folder.mkdir()
    steps = [
        {"step": s, "loss": 7 - s / 50, "characters": 5000 * batch, "seconds": 0.5} for s in range(1, 101)
    ]
    held_out = [{"step": s, "validation_loss": 7.1 - s / 50, "validation_accuracy": 0.1} for s in (50, 100)]
    text = "".join(json.dumps(line) + "\n" for line in steps + held_out) + '{"step": 101, "lo'
    (folder / "metrics.jsonl").write_text(text)
    events: list[dict[str, Any]] = [{"event": "start", "step": 0, "time": 0.0}]
    if lost:
        events.append(
            {"event": "worker_lost", "step": None, "time": 60.0, "message": "worker 1 <was> killed"}
        )
        events.append({"event": "resume", "step": 40, "time": 65.0, "message": "resumes from step 40"})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"format": 1, "recipe": {"train": {"steps": 100, "length": 240, **train}}})
    )
    (folder / "result.json").write_text(json.dumps({"unigram_entropy": 6.2, "symbol": "subword"}))
    return folder


def make_trial(setting: int, steps: int, loss: float, state: str = "finished", **more: Any) -> TrialState:
    """A trial whose loss came down to `loss` at `steps` from one more at 5."""
    values = more.pop("values", {RATE: 2 + setting, NAME: ("full", "multi_scale")[setting % 2]})
    speed = 1000.0 * (setting + 1)
    same = {"validation_accuracy": 0.1, "parameters": 10_000, "characters_per_second": speed}
    reports = [
        {
            "step": step,
            "validation_loss": loss + (steps - step) / 5,
            "train_seconds": 1000 * step / speed,
            **same,
        }
        for step in range(5, steps + 1, 5)
    ]
    return trial_state(f"trial_{setting:03d}", values, state, reports, setting=setting, seed=0, **more)


def events(trials: Sequence[TrialState], skipped: Mapping[str, int]) -> Iterator[Event]:
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
            yield {
                "event": "report",
                "trial": trial.name,
                "verdict": verdict,
                "report": {"report": number, **report},
            }
        for _ in range(2 * (trial.state == "failed")):
            yield {"event": "failure", "trial": trial.name, "error": trial.error}


def make_sweep(folder: Path, trials: list[TrialState], skipped: dict[str, int] | None = None) -> Path:
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
    (folder / "sweep.yaml").write_text(yaml.safe_dump({"format": 1, "recipe": recipe}))
    (folder / "journal.jsonl").write_bytes(b"".join(map(journal_line, events(trials, skipped or {}))))
    if all(trial.state in ("finished", "stopped", "failed") for trial in trials):
        named = {"target": LOSS, "quality": LOSS, "budget": SimpleNamespace(unit="step")}
        sweep: Any = SimpleNamespace(
            space=space, best_recipe=lambda values: {"values": dict(values)}, **named
        )
        write(folder, sweep, trials, skipped)
    return folder


def record(folder: Path, *attempts: dict[str, Any]) -> Path:
    """Put attempts into the config of a run."""
    mapping = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**mapping, "attempts": list(attempts)}))
    return folder


def view_of(folder: Path, trials: list[TrialState]) -> SweepView:
    found = load(make_sweep(folder, trials))
    assert isinstance(found, SweepRecord)
    return SweepView(found)


def test_a_run_shows_loss_throughput_and_restarts(report: Callable[..., Page], tmp_path: Path) -> None:
    page = report(record(make_run(tmp_path / "run<1>", lost=True), ATTEMPT))
    assert page.headings == ["Pretraining · run<1>"]
    assert f"{tmp_path}/run<1> (complete, begun 2026-11-22 16:44 UTC)" in page.text
    assert {title: card[0] for title, card in page.cards.items()} == {
        "Held-out loss, nats per subword": "5.100", "Accuracy": "10.0%", "Steps": "100 of 100 steps",
        "Speed": "10 k characters/s",
    }  # fmt: skip
    assert page.cards["Steps"][1] == "500 k characters in 50.0 s."
    assert page.cards["Speed"][1] == "Median of the steps. 1 restart after a lost worker."
    assert page.figures == ["Loss by step", "Characters per second by step"]
    assert page.tables["Events"][2:] == [
        ["1970-01-01 00:01:00", "worker lost", "–", "–", "worker 1 <was> killed", ""],
        ["1970-01-01 00:01:05", "resume", "40", "–", "resumes from step 40", ""],
    ]
    assert ["train.length", "240"] in page.tables["Settings"]
    (row,) = page.tables["Commands, versions and machines"][1:]
    assert row[:3] == ["2026-11-22 16:44", "tokenfree pretrain tiny --data 'a b'", "0cb59b8f6f-dirty"]
    assert row[3] == "2 cores, 23.5 GiB, no accelerator, Linux-6.1-x86_64, Python 3.11.7"
    assert row[4] == "numpy 2.4.6, tokenfree 0.1.0, torch 2.13.0"


@pytest.mark.parametrize(
    ("margin", "low", "verdict", "said"),
    [
        (
            0.4,
            0.3,
            "Yes",
            "0.40 nats per subword (95% interval 0.30 to 0.50) below the best guess without context",
        ),
        (0.4, -0.1, "Not yet", "0.40 nats per subword (95% interval -0.10 to 0.50) below the best guess"),
        (-0.1, -0.7, "Not yet", "0.10 nats per subword (95% interval -0.50 to 0.70) above the best guess"),
        (0.4, None, "Not yet", "0.40 nats per subword below the best guess without context."),
    ],
)
def test_the_first_card_says_whether_the_model_uses_its_context(
    margin: float, low: float | None, verdict: str, said: str, tmp_path: Path
) -> None:
    run = load(make_run(tmp_path / "run"))
    assert isinstance(run, RunRecord)
    ends = {} if low is None else {"margin_low": low, "margin_high": 0.5}
    context = {"step": 50, "margin": margin, **ends, "probe": 1.25}
    uses, probe, *_ = run_section(run, Predictions(context)).cards
    assert (uses.title, uses.value) == (USES, verdict)
    assert said in uses.note
    assert "at step 50" in uses.note
    assert (probe.title, probe.value) == (PROBE, "1.25 nats")


def test_a_run_without_its_data_has_a_margin_without_an_interval(
    report: Callable[..., Page], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    result = {
        "symbol": "subword", "validation_means": {"validation_masked_only_loss": 5.0},
        "baselines": {"unigram": 6.0, "masked_only_unigram": 6.5, "masked_only_clue": 5.75},
    }  # fmt: skip
    (run / "result.json").write_text(json.dumps(result))
    value, note = report(run).cards[USES]
    assert value == "Yes"
    assert "0.75 nats per subword below the best guess without context. No interval without its data." in note


def test_a_section_never_mixes_two_steps(tmp_path: Path) -> None:
    """The held-out loss is that of the step that was evaluated, or an earlier one, and each card names its step."""
    run = load(make_run(tmp_path / "run"))
    assert isinstance(run, RunRecord)
    for step, loss in ((100, "5.100"), (60, "6.100"), (50, "6.100")):
        context = {"step": step, "margin": 0.4, "margin_low": 0.3, "margin_high": 0.5, "probe": 1.25}
        cards = {card.title: card for card in run_section(run, Predictions(context)).cards}
        assert all(f"at step {step} " in cards[title].note or f"at step {step}:" in cards[title].note
                   for title in (USES, PROBE))  # fmt: skip
        validated = 100 if step == 100 else 50
        held_out, accuracy = cards["Held-out loss, nats per subword"], cards["Accuracy"]
        assert held_out.value == loss
        assert held_out.note.startswith(f"At step {validated}.")
        assert f"at step {validated}." in accuracy.note
        row = comparison_section([run, run], [Predictions(context)] * 2).blocks[0].tables[0]
        cells = dict(zip(row.header, row.rows[0], strict=True))
        assert (cells["step of margin"], cells["step of loss"]) == (str(step), str(validated))
        assert cells["held-out loss"] == f"{loss}0"


def test_runs_are_compared_by_the_characters_that_they_read(
    report: Callable[..., Page], tmp_path: Path
) -> None:
    large, small = (
        make_run(tmp_path / "a", batch=2, global_batch=16),
        make_run(tmp_path / "b", global_batch=8),
    )
    page = report(large, small)
    assert page.headings[0] == "Runs compared"
    header, *rows = page.tables["Runs"]
    assert header[3:5] == ["held-out loss", "loss at 500 k characters"]
    found = [[row[0], *row[3:5]] for row in rows]
    assert found == [[str(large), "5.1000", "6.1000"], [str(small), "5.1000", "5.1000"]]
    assert page.tables["Settings that differ"][1:] == [["train.global_batch", "16", "8"]]
    assert "not equally hard" not in page.text
    (large / "result.json").write_text(json.dumps({"symbol": "subword", "baselines": {"unigram": 5.2}}))
    assert "not equally hard" in report(large, small).text


def test_a_run_that_just_began(report: Callable[..., Page], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("")
    (run / "result.json").unlink()
    page = report(run, run)
    assert "No step has been made yet." in page.text
    assert "(not ended)" in page.text


def test_other_workers_and_machines_are_in_the_events(report: Callable[..., Page], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    event = {"event": "resume", "step": 60, "time": 4.0, "workers": 2, "machine": {**MACHINE, "cores": 8}}
    (run / "events.jsonl").write_text(json.dumps(event) + "\n")
    (row,) = report(run).tables["Events"][1:]
    assert row[2:] == ["60", "2", "", "8 cores, 23.5 GiB, no accelerator, Linux-6.1-x86_64, Python 3.11.7"]


def test_a_sweep_shows_the_best_setting_and_what_failed(report: Callable[..., Page], tmp_path: Path) -> None:
    trials = [
        make_trial(0, 10, 4.0), make_trial(1, 10, 4.2), make_trial(2, 10, 4.5), make_trial(3, 5, 3.0, "stopped"),
        trial_state("trial_004", {RATE: 6, NAME: "full"}, "failed", (), "ValueError: <b>no</b>", 4, 0),
    ]  # fmt: skip
    page = report(make_sweep(tmp_path / "sweep it", trials, {"rate 7 does not <divide> 240": 3}))
    chance = "(one seed per setting: differences between settings may be chance)"
    assert page.cards["Best setting"] == ["2 · full", f"trial_000: rate = 2, attention.name = full {chance}"]
    assert page.cards["Best held-out loss (nats)"] == ["4.000", "At step 10, one seed."]
    assert page.cards["Trials"] == ["5", "3 finished, 1 stopped, 1 failed; 3 settings that cannot work."]
    assert f"tokenfree pretrain '{tmp_path}/sweep it/best.yaml' --data DIR --output RUN" in page.text
    failed = page.tables["Failed trials, which take no part in comparisons"]
    assert failed[1] == ["trial_004", "ValueError: <b>no</b>", "rate = 6, attention.name = full"]
    skipped = page.tables["Settings that were not run, because the recipe refuses them"]
    assert skipped[1] == ["rate 7 does not <divide> 240", "3"]
    assert ["budget.steps", "10"] in page.tables["Settings of the sweep"]


def test_effects_are_shown_where_all_trials_got_to(report: Callable[..., Page], tmp_path: Path) -> None:
    values = [{RATE: 2}, {RATE: 2}, {RATE: 4}, {RATE: 4}, {RATE: 6}]
    losses = (4.0, 4.2, 5.0, 5.0, 6.0)
    trials = [
        make_trial(n, 10, loss, values=v) for n, (v, loss) in enumerate(zip(values, losses, strict=True))
    ]
    page = report(
        make_sweep(tmp_path / "sweep", [*trials, make_trial(5, 5, 6.0, "stopped", values={RATE: 6})])
    )
    rows = [row[:4] for row in page.tables["Mean loss by value"][1:]]
    assert rows == [["rate", "2", "2", "5.1000 ± 1.2706"], ["rate", "4", "2", "6.0000 ± 0.0000"],
                    ["rate", "6", "2", "6.5000 ± 6.3531"]]  # fmt: skip
    assert "6 trials at step 5. Bars: means." in page.text
    assert "Held-out loss by rate" in page.figures


def test_intervals_are_captioned_only_if_drawn(report: Callable[..., Page], tmp_path: Path) -> None:
    values = [{RATE: 2}, {RATE: 2}, {RATE: 2}, {RATE: 4}]
    trials = [make_trial(n, 10, 4.0 + n, values=of) for n, of in enumerate(values)]
    few, many = (report(make_sweep(tmp_path / str(count), trials[-count:])) for count in (3, 4))
    assert "3 trials at step 10. Bars: means." in few.text
    assert "Bars: means with 95% intervals over trials, if a value has three." in many.text


def test_equal_costs_are_neither_drawn_nor_compared(report: Callable[..., Page], tmp_path: Path) -> None:
    same = report(make_sweep(tmp_path / "sweep", [cost_trial(n, 10, 4.0 + n / 10) for n in range(3)]))
    noisy = [cost_trial(n, 10, 4.0 + n / 10, speed=100.0 + 50 * n) for n in range(3)]
    costly = [cost_trial(n, 10, 4.0 + n / 10, speed=100.0 + 50 * n, flops=1e6 / (n + 1)) for n in range(3)]
    pages = [
        same,
        *(report(make_sweep(tmp_path / name, of)) for name, of in (("noisy", noisy), ("costly", costly))),
    ]
    assert ["Loss against speed" in page.headings for page in pages] == [False, False, True]


def test_a_sweep_of_several_hyperparameters_has_all_its_figures(
    report: Callable[..., Page], tmp_path: Path
) -> None:
    page = report(make_sweep(tmp_path / "sweep", [make_trial(n, 10, 4.0 + n / 10) for n in range(8)]))
    assert page.headings[1:] == ["What each hyperparameter does", "Loss against speed", "Settings compared"]
    assert page.figures == [
        "Held-out loss by rate", "Held-out loss by attention.name", "Loss against speed of every setting",
        "All settings and their held-out loss (nats)", "Held-out loss of every trial by step",
    ]  # fmt: skip


def test_seeds_have_means_and_intervals(report: Callable[..., Page], tmp_path: Path) -> None:
    losses = ((4.0, 4.1, 4.2), (5.0, 5.2, 5.4))
    trials = [
        trial_state(
            f"trial_{s:03d}_seed_{seed}",
            {RATE: 2 + s},
            "finished",
            make_trial(s, 10, loss).reports,
            "",
            s,
            seed,
        )
        for s, found in enumerate(losses)
        for seed, loss in enumerate(found)
    ]
    page = report(make_sweep(tmp_path / "sweep", trials))
    assert page.cards["Best held-out loss (nats)"] == [
        "4.100 ± 0.248",
        "At step 10, mean of 3 seeds, 95% interval.",
    ]
    rows = [row[1:5] for row in page.tables["Settings at step 10, best first"][1:]]
    assert rows == [
        ["setting_000", "2", "4.1000 ± 0.2484", "3"],
        ["setting_001", "3", "5.2000 ± 0.4968", "3"],
    ]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "There is no best setting: no trial has reported yet."),
        ([make_trial(0, 10, 4.0, values={RATE: 2})], "trial_000: rate = 2"),
        (
            [trial_state("trial_000", {RATE: 2}, "failed", (), "no", 0, 0)],
            "no best setting: every trial failed.",
        ),
        (
            [make_trial(n, 10, float("nan"), values={RATE: n}) for n in (1, 2)],
            "no best setting: no loss is a number.",
        ),
        ([make_trial(0, 10, 4.0, values={})], "trial_000: the base recipe"),
    ],
)
def test_sweeps_with_little_to_show(
    trials: list[TrialState], said: str, report: Callable[..., Page], tmp_path: Path
) -> None:
    assert said in report(make_sweep(tmp_path / "sweep", trials)).text


def test_a_sweep_that_runs(report: Callable[..., Page], tmp_path: Path) -> None:
    running, waiting = (
        make_trial(0, 5, 4.4, "running"),
        trial_state("trial_001", {RATE: 2}, "waiting", (), "", 1, 0),
    )
    page = report(make_sweep(tmp_path / "sweep", [running, waiting]))
    assert f"{tmp_path}/sweep (not ended)" in page.text
    assert page.cards["Trials"][1] == "1 running, 1 waiting."
    assert "best.yaml" not in page.text


def cost_trial(
    setting: int, steps: int, loss: float, *, speed: float = 100.0, flops: float = 1e6, **more: Any
) -> TrialState:
    """A trial that reported every five steps of 50 characters, and came down to `loss`."""
    reports = [
        {"step": step, "validation_loss": loss + (steps - step) / 5, "characters": 50 * step, "flops": flops * step,
         "parameters": 1000, "characters_per_second": speed, "train_seconds": 50 * step / speed}
        for step in range(5, steps + 1, 5)
    ]  # fmt: skip
    values = more.pop("values", {LEARNING_RATE: 0.001 * (setting + 1)})
    return trial_state(
        f"trial_{setting:03d}", values, more.pop("state", "finished"), reports, setting=setting
    )


def test_the_front_is_where_three_settings_got_to(report: Callable[..., Page], tmp_path: Path) -> None:
    """One alone used its budget: it would be a front of one."""
    trials = [
        cost_trial(0, 10, 4.0, speed=100.0, flops=1e6), cost_trial(1, 5, 5.2, speed=300.0, flops=3e6, state="stopped"),
        cost_trial(2, 5, 5.1, speed=200.0, flops=2e6, state="stopped"),
        trial_state("trial_003", {LEARNING_RATE: 1.0}, "failed", (), "no", 3),
    ]  # fmt: skip
    view = view_of(tmp_path / "sweep", trials)
    assert (view.amount, view.front_amount) == (10, 5)
    assert view.front == ["trial_000", "trial_002", "trial_001"]
    assert "3 settings at step 5." in report(tmp_path / "sweep").text


def test_settings_are_named_by_what_differs(tmp_path: Path) -> None:
    values = [{RATE: 4, NAME: "full", LEARNING_RATE: rate} for rate in (0.00123456, 0.002, 0.003)]
    values[1].pop(NAME)
    view = view_of(
        tmp_path / "sweep", [cost_trial(n, 10, 4.0, values=given) for n, given in enumerate(values)]
    )
    names = [view.short_name(item.setting) for item in view.front_ranked]
    assert names == ["0.00123 · full", "0.002 · –", "0.003 · full"] or names == [
        "full · 0.00123", "– · 0.002", "full · 0.003",
    ]  # fmt: skip
    many = [{f"train.k{key}": key + n for key in range(5)} for n in range(2)]
    view = view_of(tmp_path / "many", [cost_trial(n, 10, 4.0, values=given) for n, given in enumerate(many)])
    assert [view.short_name(item.setting) for item in view.front_ranked] == ["0", "1"]


def test_the_best_setting_of_a_task_has_the_best_score(report: Callable[..., Page], tmp_path: Path) -> None:
    trials = []
    for setting, (score, loss) in enumerate([(0.9, 2.0), (0.6, 1.0)]):
        for seed in range(2):
            reports = [{"report": 1, "step": 10, "validation_loss": loss, "dev_score": score + 0.02 * seed}]
            name = f"trial_{setting:03d}_seed_{seed}"
            values = {LEARNING_RATE: 0.001 * (setting + 1)}
            trials.append(trial_state(name, values, "finished", reports, setting=setting, seed=seed))
    folder = make_sweep(tmp_path / "sweep", trials)
    mapping = yaml.safe_load((folder / "sweep.yaml").read_text())
    mapping["recipe"] |= {"objectives": ["dev_score"], "reports": 1}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(mapping))
    page = report(folder)
    assert page.cards["Best dev score"][0] == "0.910 ± 0.127"
    assert page.cards["Best setting"][1] == "setting_000: learning_rate = 0.001"
    assert [row[1] for row in page.tables["Settings at step 10, best first"][1:]] == [
        "setting_000",
        "setting_001",
    ]
    cells = [{"mean": mean, "interval": 0.127, "seeds": [mean, mean]} for mean in (0.91, 0.61)]
    scores = [
        {"setting": n, "values": trials[2 * n].values, "dev": cell, "test": None}
        for n, cell in enumerate(cells)
    ]
    found = {
        "task": "ner",
        "metric": "f1",
        "best": {"setting": 0, "trials": []},
        "dev": {"f1": 0.91},
        "test": {"f1": 0.875, "f1/PER": 0.9},
        "baseline": {"test": {"most frequent tag": {"f1": 0.6}}},
        "settings": scores,
    }
    (folder / "result.json").write_text(json.dumps(found))
    value, note = report(folder).cards["f1, test set"]
    assert value == "0.8750"
    assert note.endswith("Baseline: 0.6000 (most frequent tag).")


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    folders = [
        str(make_run(tmp_path / "run")),
        str(make_sweep(tmp_path / "s", [make_trial(n, 10, 4.0 + n / 10) for n in range(7)])),
    ]
    first = write_report(folders, str(tmp_path / "a.html")).read_bytes()
    assert write_report(folders, str(tmp_path / "b.html")).read_bytes() == first
    assert not re.search(rb'(src|href)="(?!#|data:image/svg)|@import|url\(', first)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", '$x^2$ & "q"', "\x1b[2J\x9b\x07\u202e"])
def test_hostile_names_are_text_in_page_and_figures(
    name: str, report: Callable[..., Page], tmp_path: Path
) -> None:
    runs = [make_run(tmp_path / each) for each in (name, "b")]
    event = {"event": "worker_lost", "step": 1, "time": 0.0, "message": name}
    (runs[0] / "events.jsonl").write_text(json.dumps(event) + "\n")
    trials = [make_trial(n, 10, 4.0 + n / 10, values={NAME: name + str(n), RATE: n}) for n in range(4)]
    page = report(*runs, make_sweep(tmp_path / "s", trials))
    assert not [tag for tag, attrs in page.marked if tag == "img" and "onerror" in attrs]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page.text)
    if "<" in name:
        assert name in page.text


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_is_nothing_we_know(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        write_report([str(tmp_path / name)], str(tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()


def test_a_page_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a folder. Give a file, such as .*/report.html"):
        write_report([str(tmp_path / "run")], str(tmp_path))


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
