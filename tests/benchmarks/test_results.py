"""The queue of results: data and scores, what is run again after a kill, sweeps, claims, and the pages."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.results import queue
from benchmarks.results import rows as queued
from benchmarks.results.__main__ import LINES, main
from benchmarks.results.check import differences, wrong_numbers
from benchmarks.results.claims import AGREES, CLAIMS, DISAGREES, NO_CONTEXT, NOT_RUN, Claim, find
from benchmarks.results.data import NAMES, PAIRS, PARTS, SETS, Example, Set, parts
from benchmarks.results.linear import CRF, REGRESSION
from benchmarks.results.queue import (
    CpuSeconds,
    Failed,
    Folders,
    Line,
    RateChoice,
    Run,
    append_line,
    call,
    choose_rate,
    in_lane,
    read_lines,
)
from benchmarks.results.rows import BASELINE, ENGLISH_TEXTS, FINETUNE, PRETRAIN, QUEUE, ROWS, Row
from benchmarks.results.scores import name_scores, spans, text_scores
from benchmarks.results.simple import FREQUENT_TAG, LARGER_CLASS, NGRAMS, Embedder, measure
from benchmarks.results.tables import AT_END, PAGE, TEMPLATE, page_tables
from benchmarks.results.verdicts import (
    BETTER,
    EQUAL,
    FEW_SEEDS,
    NATS_MARGIN,
    OPEN,
    WORSE,
    Interval,
    compare,
    counted,
    judge,
)
from tests.conftest import REPOSITORY
from tokenfree.core.settings import build, merge, nest
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.workflows.recipes import library

ANA, BEA = (
    {"tokens": ["Ana", "Ruiz", "naps"], "ner_tags": ["B-PER", "I-PER", "O"]},
    {"tokens": ["Bea"], "ner_tags": ["B-PER"]},
)
FIRST = Row("one", BASELINE, "one", rates=("0.1", "0.2"), leader="one")
SECOND = Row("two", BASELINE, "two", rates=("0.1", "0.2"), leader="one")


def scored(run: str, dev: float, **more: Any) -> Line:
    """Return a line with one score."""
    row, _, rate = run.rpartition("-")[0].partition("@")
    return {
        "run": run,
        "row": row,
        "seed": 0,
        **({"rate": rate} if rate else {}),
        "scores": {"m": {"dev": {"f1": dev}, "test": {"f1": dev}}},
        **more,
    }


def read_lines_as_texts(file: Path) -> list[Example]:
    """Read a text per line."""
    return [{"text": line, "label": "a"} for line in file.read_text().splitlines()]


@pytest.mark.parametrize("own", [(), ("test",), ("dev", "test")])
def test_parts_are_fixed_disjoint_and_keep_equal_texts_together(tmp_path: Path, own: tuple[str, ...]) -> None:
    for part in PARTS:
        (tmp_path / part).write_text("".join(f"{part} {number % 300}\n" for number in range(600)))
    source = Set("s", "texts", read_lines_as_texts, ("train",), **{part: (part,) for part in own})
    found = {part: [each["text"] for each in examples] for part, examples in parts(tmp_path, source).items()}
    assert sum(map(len, found.values())) == 600 * (1 + len(own))
    assert not any(set(found[one]) & set(found[other]) for one in PARTS for other in PARTS if one != other)
    assert all(each.startswith(part) for part in own for each in found[part])
    wanted = {"train": 420, "dev": 60, "test": 120} | dict.fromkeys(own, 600)
    wanted["train"] += sum({"dev": 60, "test": 120}[part] for part in own)
    assert all(abs(len(found[part]) - wanted[part]) < 60 for part in PARTS)


def test_an_inside_tag_that_continues_nothing_begins_a_name() -> None:
    assert spans(["I-PER", "I-PER", "I-LOC", "B-LOC", "O"]) == {(0, 2, "PER"), (2, 3, "LOC"), (3, 4, "LOC")}


def test_names_are_scored_by_whether_training_has_them_and_by_length() -> None:
    found = name_scores([ANA], [ANA, BEA], [["B-PER", "I-PER", "B-LOC"], ["O"]])
    assert found["f1"] == pytest.approx(2 / 4)  # one of two names, one of two predictions
    assert (found["names unseen"], found["f1 unseen"]) == (1, 0)
    assert (found["f1 1 word"], found["f1 2 words"], found["names 3 words or more"]) == (0, 1, 0)


def test_a_set_with_domains_has_the_mean_over_them() -> None:
    gold = [{"label": "1", "domain": domain} for domain in ("a", "a", "a", "b")]
    assert text_scores(gold, ["1", "1", "1", "0"]) == {"accuracy": 0.5, "accuracy a": 1, "accuracy b": 0}


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A folder with a set of names and one of texts, whose parts are equal."""
    texts = [
        {"text": "a good film", "label": "1"},
        {"text": "a bad film", "label": "0"},
        {"text": "good", "label": "1"},
    ]
    for name, examples in (("swa", [ANA]), ("sst2", texts)):
        for part in PARTS:
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{part}.jsonl").write_text(
                "".join(json.dumps(each) + "\n" for each in examples * 3)
            )
    return tmp_path


def test_baselines_learn_from_the_training_part(sets: Path) -> None:
    assert measure(sets, "swa", None)[FREQUENT_TAG]["test"]["f1"] == 1
    found = measure(sets, "sst2", None)
    assert found[LARGER_CLASS]["dev"]["accuracy"] == pytest.approx(2 / 3)
    assert found[NGRAMS]["dev"]["accuracy"] == 1


def test_linear_models_learn_from_the_training_part(sets: Path) -> None:
    assert measure(sets, "sst2", None, linear=True)[REGRESSION]["test"]["accuracy"] == 1
    pytest.importorskip(
        "pycrfsuite", reason="python-crfsuite is not installed; see benchmarks/results/linear.py"
    )
    assert measure(sets, "swa", None, linear=True)[CRF]["test"]["f1"] == 1


class FakeEncoder:
    """Gives each character its codepoint as its embedding; reads 4 at once."""

    max_characters = 4
    encoder = SimpleNamespace(config=SimpleNamespace(width=1))

    def __call__(self, texts: Sequence[str]) -> SimpleNamespace:
        assert max(map(len, texts)) <= self.max_characters
        rows = [[-1, *map(ord, text), *[-1] * (5 - len(text))] for text in texts]
        return SimpleNamespace(characters=torch.tensor(rows, dtype=torch.float32)[..., None])


def test_a_probe_has_the_mean_over_the_characters_of_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenfree.load_encoder", lambda run: FakeEncoder())
    texts = ["abcdefghij", "xy", "abcd"]
    places = [[(0, 10), (2, 6), (8, 9)], [(0, 2)], [(1, 3)]]
    means = Embedder(Path("run"))(texts, places)
    for text, each, found in zip(texts, places, means, strict=True):
        wanted = [sum(map(ord, text[start:end])) / (end - start) for start, end in each]
        assert found[:, 0].tolist() == pytest.approx(wanted)


def test_a_sweep_decides_on_the_rate_of_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "QUEUE", ((FIRST, SECOND),))
    assert [(run.row.name, run.seed, run.rate) for run in queue.runs()][:3] == [
        ("one", 0, "0.1"),
        ("one", 0, "0.2"),
        ("two", 0, None),
    ]
    lines = {"one@0.1-0": scored("one@0.1-0", 0.3)}
    with pytest.raises(queue.NotReady, match=r"one has no run at 0\.2"):
        Run(SECOND, 1).name(lines)
    lines["one@0.2-0"] = scored("one@0.2-0", 0.4)
    assert Run(SECOND, 1).name(lines) == "two@0.2-1"
    # A row that ran at several rates chooses by its own development part.
    lines |= {f"two@{rate}-0": scored(f"two@{rate}-0", dev) for rate, dev in (("0.1", 0.6), ("0.2", 0.5))}
    assert choose_rate(SECOND, lines) == RateChoice("0.1", "two", ("0.1", "0.2"))


def test_further_rates_extend_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataclasses.replace(FIRST, further_rates=("0.4", "0.05"))
    monkeypatch.setattr(queue, "QUEUE", ((row,),))
    assert [run.rate for run in queue.runs() if run.seed == 0] == ["0.1", "0.2", "0.4", "0.05"]
    scores = {"0.1": 0.3, "0.2": 0.4}
    lines = {f"one@{rate}-0": scored(f"one@{rate}-0", dev) for rate, dev in scores.items()}
    assert choose_rate(row, lines).is_at_end
    lines["one@0.4-0"] = scored("one@0.4-0", 0.3)
    choice = choose_rate(row, lines)
    assert choice == RateChoice("0.2", "one", ("0.1", "0.2", "0.4"))
    assert not choice.is_at_end


def test_lanes_begin_apart_and_leave_nothing_out() -> None:
    made = [Run(FIRST, seed) for seed in range(5)]
    assert [run.seed for run in in_lane(made, 2, 2)] == [1, 3, 0, 2, 4]


def test_a_torn_line_makes_way(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    append_line(file, {"run": "a"})
    with file.open("a") as opened:
        opened.write('{"run": "b", "sco')
    assert set(read_lines(file)) == {"a"}
    append_line(file, {"run": "b"})
    assert set(read_lines(file)) == {"a", "b"}


def test_a_run_that_fails_or_waits_does_not_stop_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def line(worker: queue.Worker) -> Line:
        if worker.row.name == "bad":
            raise Failed("the loss is not a number")
        if worker.row.name == "waits" and "good-0" not in worker.lines:
            raise queue.NotReady("good-0")
        done.append(worker.name)
        return scored(worker.name, 0.5, cpu_seconds=1)

    monkeypatch.setattr(queue.Worker, "line", line)
    rows = [Run(Row(name, BASELINE, name), 0) for name in ("bad", "waits", "good")]
    folders = Folders(tmp_path, tmp_path / "work", tmp_path / "lines.jsonl")
    assert queue.work(rows, folders) == ["bad-0"]
    assert done == ["good-0", "waits-0"]
    assert queue.work(rows, folders) == ["bad-0"]
    assert done == ["good-0", "waits-0"]


PROGRAM = """
import pathlib, subprocess, sys, time

attempts = pathlib.Path("attempts")
first = not attempts.exists()
attempts.touch()
if first:
    busy = "import time\\nwhile time.process_time() < 2: pass"
    subprocess.Popen([sys.executable, "-c", busy])
while time.process_time() < 0.3: pass
if first: time.sleep(60)
"""
PARENT = """
from pathlib import Path
from benchmarks.results import queue
queue.POLL_SECONDS = 0.1
queue.call(["program"], Path("log"), queue.CpuSeconds(Path("cpu")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_seconds_are_those_of_all_processes_and_of_attempts_that_were_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    command = [sys.executable, "-c", PARENT]
    killed = subprocess.Popen(command, cwd=tmp_path, env=environment)
    while not (tmp_path / "cpu").exists() or sum(json.loads((tmp_path / "cpu").read_text())) < 1:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = CpuSeconds(tmp_path / "cpu").total()
    assert before >= 1  # the program alone takes 0.3 and a start: its child counts
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert CpuSeconds(tmp_path / "cpu").total() >= before + 0.2


def test_a_failure_says_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"ended with 1: .*No module named no_such_module"):
        call(["no_such_module", "now"], tmp_path / "log", CpuSeconds(tmp_path / "cpu"))


@pytest.mark.parametrize(
    ("interval", "seeds", "verdict"),
    [
        ((0.1, 0.05, 0.15), 3, BETTER),
        ((-0.1, -0.15, -0.05), 3, WORSE),
        ((0.1, -0.05, 0.25), 3, OPEN),
        ((0.1, 0.05, 0.15), 2, FEW_SEEDS[2]),
        ((0.0, -0.04, 0.04), 3, EQUAL),
        ((0.03, 0.01, 0.04), 3, EQUAL),
        ((0.05, 0.01, 0.1), 3, BETTER),
        ((0.0, -0.05, 0.04), 3, OPEN),
        ((0.0, -0.04, 0.04), 2, FEW_SEEDS[2]),
    ],
)
def test_a_verdict_needs_three_seeds_and_the_whole_interval(
    interval: tuple[float, float, float], seeds: int, verdict: str
) -> None:
    assert judge(Interval(*interval), seeds, 0.05) == verdict


def test_compare_needs_no_seeds_of_a_side_without_randomness() -> None:
    values = [0.7, 0.71, 0.72]
    assert compare(values, [0.6], 0.005).verdict == FEW_SEEDS[1]
    assert compare(values, [0.6], 0.005, other_is_exact=True).verdict == BETTER
    assert compare(values[:1], [0.6], 0.005, other_is_exact=True) == (FEW_SEEDS[1], None, 1)
    interval = compare(values, [0.6], 0.005, other_is_exact=True).interval
    # Student's t with two degrees of freedom: 4.303 times the standard error 0.01 / sqrt(3).
    assert interval == pytest.approx((0.11, 0.11 - 0.02484, 0.11 + 0.02484), abs=1e-5)


def test_counted_names_verdicts_in_order() -> None:
    assert counted([OPEN, FEW_SEEDS[1], BETTER, OPEN]) == "1 better, 2 open, 1 open (one seed)"


def test_losses_are_compared_only_if_both_sides_use_context() -> None:
    claim = Claim("p", "t", "n", "good", "bad")
    lines = [
        {
            "row": row,
            "seed": seed,
            "evaluation": {"validation_masked_only_loss": loss + seed / 100, "probe": 0.6},
        }
        for row, loss in (("good", 4.0), ("bad", 4.5))
        for seed in range(3)
    ]
    assert find(claim, lines).verdict == AGREES
    assert find(dataclasses.replace(claim, better="bad", worse="good"), lines).verdict == DISAGREES
    same = dataclasses.replace(claim, equal=True)
    assert find(same, lines).verdict == DISAGREES
    for line in lines:
        line["evaluation"]["validation_masked_only_loss"] = 4 + line["seed"] * NATS_MARGIN / 10
    assert find(same, lines).verdict == AGREES
    assert find(claim, lines).verdict == EQUAL
    lines[0]["evaluation"]["probe"] = 0.5
    assert find(claim, lines).verdict == NO_CONTEXT
    assert find(claim, lines[:3]).verdict == NOT_RUN


def test_every_row_has_a_recipe_that_takes_its_options() -> None:
    for row in ROWS.values():
        if row.kind in (PRETRAIN, FINETUNE):
            kind = PretrainRecipe if row.kind == PRETRAIN else FinetuneRecipe
            recipe = merge(library.read_based(row.recipe), nest(list(row.options.items())))
            build(kind, recipe, source=row.name)
        assert row.begins_with is None or ROWS[row.begins_with].kind == PRETRAIN
        assert not row.rates or ROWS[row.leader].rates == row.rates
    assert len(ROWS) == sum(map(len, QUEUE))


def test_every_set_has_its_rows_and_every_claim_its_runs() -> None:
    for name in SETS:
        rows = {"baseline", "probe", "tuned", "untrained", *(("long",) if name in ENGLISH_TEXTS else ())}
        rows |= {"gpu"} if name in queued.FIRST else set()
        rows |= {"linear", "scratch"} if SETS[name].kind != PAIRS else set()
        assert {row.name.removeprefix(f"{name}-") for row in ROWS.values() if row.set == name} == rows
    there = {line["row"] for line in read_lines(LINES).values()} | set(ROWS)
    assert {name for claim in CLAIMS for name in (claim.better, claim.worse)} <= there


def test_check_accepts_the_pages() -> None:
    assert main(["check"]) == 0


def test_check_names_the_place_and_both_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = read_lines(LINES)
    changed = lines["all-gpu-0"]["evaluation"]["margin"] + 1
    lines["all-gpu-0"]["evaluation"]["margin"] = changed
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    assert main(["check", "--lines", str(tmp_path / "lines.jsonl")]) == 1
    said = capsys.readouterr().err
    assert re.search(
        rf"^docs/results\.md:[0-9]+: the page has '.*'; the lines give '.*{changed:.2f} nats", said
    )


def test_differences_of_tables_are_those_of_cells() -> None:
    text = "# Title\n\n| a | 0.7 | 0.8 |\n\nThe end."
    assert list(differences(text, text.replace("0.7", "0.6"))) == [
        "3: the page has '0.7'; the lines give '0.6'"
    ]
    assert list(differences(text, text.replace("The end.", ""))) == [
        "5: the page has 'The end.'; the lines give ''"
    ]


def test_numbers_of_a_sentence_are_compared() -> None:
    text = "F1 is [0.70\nand 0.71](page) here."
    assert not list(wrong_numbers(text, "is [{} and {}](page)", ("0.70", "0.71")))
    assert list(wrong_numbers(text, "is [{} and {}](page)", ("0.70", "0.72"))) == [
        "'is [{} and {}](page)' has 0.71; the lines give 0.72"
    ]
    assert list(wrong_numbers(text, "{} of", ("3",))) == ["nothing reads '3 of'"]


def test_the_template_has_no_typed_measurement() -> None:
    assert not re.findall(r"[0-9][.,][0-9]", TEMPLATE.read_text(encoding="utf-8"))


def test_the_page_for_users_is_short() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    prose = [line for line in text.splitlines() if not line.startswith(("|", "<!--"))]
    assert len(" ".join(prose).split()) <= 800 - 100  # the tables have about a hundred words
    assert text.count("|---|---|") <= 2 * 12


def test_the_tables_use_the_best_rate_and_mark_an_end() -> None:
    name = next(
        name for name in SETS if SETS[name].kind == NAMES and f"{name}-tuned" != ROWS[f"{name}-tuned"].leader
    )
    row = ROWS[f"{name}-tuned"]
    lines = [
        scored(f"{row.leader}@{rate}-0", dev) for rate, dev in zip(row.rates, (0.1, 0.3, 0.2), strict=True)
    ]
    for rate, test in zip(row.rates, (0.9, 0.7, 0.8), strict=True):
        scores = {"dev": {"f1": 1 - test}, "test": {"f1": test, "f1 unseen": 0.4}}
        lines.append(scored(f"{row.name}@{rate}-0", 0, scores={"fine-tuned": scores}))

    def text(of: Sequence[Line]) -> str:
        return page_tables({line["run"]: line for line in of}).replace(" not run |", "")

    # Without a sweep of its own, a row takes the rate of its leader.
    assert "| 0.700 / 0.400 |" in text([*lines[:3], lines[4]])
    assert f"| {', '.join(row.rates)} | {row.rates[1]} |" in text([*lines[:3], lines[4]])
    assert f"| 0.800 / 0.400{AT_END} |" in text([*lines[:3], lines[3], lines[5]])
    assert "| 0.700 / 0.400 |" in text(lines)


def test_the_command_refuses_missing_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENFREE_TEST_DATA", "nowhere")
    assert main(["run"]) == 2
    assert "TOKENFREE_TEST_DATA names no folder with masakhaner/: nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "--lane", "3/2"])
    assert main(["list", "--only", "text-*"]) == 0
    assert "text-untrained-2" in capsys.readouterr().out
