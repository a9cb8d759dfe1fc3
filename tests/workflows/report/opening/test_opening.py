"""What a page opens with: three sentences, dates, versions and machines; and what each run says it was made with."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.workflows.report.test_report import Page, make_run, make_sweep, make_trial
from tokenfree.workflows.report.load import RunRecord, load
from tokenfree.workflows.report.sections.run_section import run_section
from tokenfree.workflows.report.write import write_report

MACHINE = {"cores": 2, "memory_gib": 23.5, "accelerators": [], "system": "Linux-6.1-x86_64", "python": "3.11.7"}
ATTEMPT = {
    "time": "2026-11-22T16:44:35Z", "command": "tokenfree pretrain tiny --data 'a b'", "commit": "0cb59b8f6f31-dirty",
    "machine": MACHINE, "packages": {"tokenfree": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
}  # fmt: skip


def record(folder: Path, *attempts: dict[str, Any], file: str = "config.yaml") -> Path:
    """Put attempts into the config of a folder."""
    mapping = yaml.safe_load((folder / file).read_text())
    (folder / file).write_text(yaml.safe_dump({**mapping, "attempts": list(attempts)}))
    return folder


def page_of(tmp_path: Path, *folders: Path) -> Page:
    path = write_report([str(folder) for folder in folders], str(tmp_path / "page.html"))
    return Page(path.read_text(encoding="utf-8"))


def test_a_page_opens_with_findings_dates_versions_and_machine(tmp_path: Path) -> None:
    page = page_of(tmp_path, record(make_run(tmp_path / "run"), ATTEMPT))
    assert (
        "run has a held-out loss of 5.100 nats per subword after 100 steps, 1.100 below what needs no context (6.200). "
        "run read 500 k characters in 50.0 s of steps, 10 k a second in the median. "
        "The first guess of run is right for 10.0% of the held-out targets."
    ) in page.text
    assert page.numbers["Trained"] == "1970-01-01 00:00 to 2026-11-22 16:44 UTC"
    assert page.numbers["Versions"] == "tokenfree 0.1.0 (commit 0cb59b8f6f-dirty), Python 3.11.7, torch 2.13.0"
    assert page.numbers["Machine"] == "2 cores, 23.5 GiB, no accelerator, Linux-6.1-x86_64"
    assert page.tables["Commands given"][1:] == [
        ["2026-11-22 16:44", "tokenfree pretrain tiny --data 'a b'", "0cb59b8f6f-dirty", page.numbers["Machine"]]
    ]
    assert page.tables["Versions of packages"][0] == ["package", "version"]
    assert ["numpy", "2.4.6"] in page.tables["Versions of packages"]


def test_runs_of_several_versions_and_of_none_that_is_known(tmp_path: Path) -> None:
    gpus = {**MACHINE, "accelerators": ["NVIDIA H100"] * 2, "cores": 1}
    later = {**ATTEMPT, "packages": {**ATTEMPT["packages"], "torch": "2.14.0"}, "commit": None, "machine": gpus}
    page = page_of(tmp_path, record(make_run(tmp_path / "a"), ATTEMPT, later), make_run(tmp_path / "b"))
    assert page.numbers["Versions"].endswith("; tokenfree 0.1.0, Python 3.11.7, torch 2.14.0; not recorded for some")
    assert "; 1 core, 23.5 GiB, 2 x NVIDIA H100, Linux-6.1-x86_64; not" in page.numbers["Machine"]
    header, *rows = page.tables["Versions of packages"]
    assert header == ["package", *["from 2026-11-22 16:44"] * 2]
    assert ["torch", "2.13.0", "2.14.0"] in rows
    assert [row[2] for row in page.tables["Commands given"][1:]] == ["0cb59b8f6f-dirty", "none"]
    assert "did not record its command" in page.text  # of b


def test_findings_on_several_runs_and_a_sweep_take_turns(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "s", [make_trial(n, 10, 4.0 + n / 10) for n in range(3)])
    runs = [make_run(tmp_path / "small"), make_run(tmp_path / "large", batch=3)]
    page = page_of(tmp_path, sweep, *runs)
    assert (
        "Of 2 runs small has the lowest held-out loss, 5.100 nats per subword after 500 k characters; large is 0.000 "
        "behind after 1.5 M characters. "
        "Of the settings that s tried, rate = 2, attention.name = full is best at step 10: held-out loss 4.000 nats "
        "(one seed), 0.100 ahead of the next. "
        "large reads fastest, 30 k characters a second in the median, and small slowest, 10 k."
    ) in page.text.replace("attention.name = full, rate = 2", "rate = 2, attention.name = full")


def test_losses_of_targets_that_are_not_equally_hard_are_not_compared(tmp_path: Path) -> None:
    easy = make_run(tmp_path / "easy")
    (easy / "result.json").write_text(json.dumps({"symbol": "subword", "baselines": {"unigram": 5.2}}))
    text = page_of(tmp_path, easy, make_run(tmp_path / "hard")).text
    assert "Of 2 runs, whose targets are not equally hard, hard is furthest below what needs no context (1.100" in text
    short = make_run(tmp_path / "short", length=80)
    assert "has the lowest" not in page_of(tmp_path, short, make_run(tmp_path / "long")).text
    running = make_run(tmp_path / "running")
    (running / "result.json").unlink()
    assert "running has the lowest" in page_of(tmp_path, running, make_run(tmp_path / "ended")).text


def test_findings_of_a_sweep_say_what_speed_costs(tmp_path: Path) -> None:
    text = page_of(tmp_path, make_sweep(tmp_path / "s", [make_trial(n, 10, 4.0 + n / 10) for n in range(3)])).text
    assert "reads 3.00 times as fast as the best, and is 0.200 nats worse." in text
    assert "No trial of t has come to a held-out loss yet." in page_of(tmp_path, make_sweep(tmp_path / "t", [])).text


def test_changes_of_workers_and_of_the_machine_are_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    other = {**MACHINE, "cores": 8}
    events = [
        {"event": "start", "step": 0, "time": 1.0, "workers": 4, "machine": MACHINE},
        {"event": "resume", "step": 80, "time": 2.0, "workers": 3, "machine": MACHINE},
        {
            "event": "resume",
            "step": 40,
            "time": 3.0,
            "workers": 2,
            "machine": MACHINE,
        },  # what came after 40 is done anew
        {"event": "resume", "step": 60, "time": 4.0, "workers": 2, "machine": other},
        {"event": "resume", "step": 70, "time": 5.0, "workers": 2, "machine": other},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    run = load(folder)
    assert isinstance(run, RunRecord)
    curves = run_section(run).blocks[0]
    assert curves.text == (
        "From step 41 on 2 workers in place of 4. From step 61 on another machine: 8 cores, 23.5 GiB, no accelerator, "
        "Linux-6.1-x86_64."
    )
    assert [words in curves.pictures[1] for words in ("4 → 2 workers", "other machine", "3 workers")] == [
        True,
        True,
        False,
    ]
    assert "workers" not in curves.pictures[0]


def test_the_values_of_keys_are_read_without_scrolling(tmp_path: Path) -> None:
    page = Path(write_report([str(make_run(tmp_path / "run"))], str(tmp_path / "page.html"))).read_text()
    assert "train.<wbr>length" in page
    assert '<table class=" keyed">\n  <caption>Settings</caption>' in page
    assert '<table class="">\n  <caption>Validations</caption>' in page
