"""A run of the queue of fine-tuning, its line, the baselines, and what the tables say of lines."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.claims import AGREES, DISAGREES, UNTOLD
from benchmarks.learning.results import Line, Results
from benchmarks.tasks import __main__ as command
from benchmarks.tasks.baselines import CONSTANT, FREQUENT_TAG, LARGER_CLASS, NO_PAIRS, WORDS, baselines
from benchmarks.tasks.claims import CLAIMS, Claim, measured, scores, verdict
from benchmarks.tasks.plan import Entry, Folders
from benchmarks.tasks.rows import ROWS
from benchmarks.tasks.tables import claims, commands, results, tables
from benchmarks.tasks.work import finetuned, main_score, told
from tests.conftest import REPOSITORY

BY_NAME = {row.name: row for row in ROWS}
SST = next(claim for claim in CLAIMS if claim.sides == (("sst5-ms", "sst5-standard"),))
MIRRORED = next(claim for claim in CLAIMS if claim.sides == (("mirrored-2", "mirrored-deep-hier-s-2"),))


def line(row: str, seed: int, score: float, **changes: Any) -> Line:
    """The line of a run."""
    name = "relative_mse" if row.startswith("mirrored") else "accuracy"
    beside = {"larger class": 0.25, "words": 0.38}
    return {
        "name": f"{row}-{seed}",
        "row": row,
        "seed": seed,
        "data": BY_NAME[row].data,
        "dev": {name: score + 0.01},
        "test": {name: score},
        "baselines": {"dev": beside, "test": beside},
        "cpu_seconds": 120.0,
        **changes,
    }


def of_seeds(row: str, *values: float) -> list[Line]:
    """A line for each seed."""
    return [line(row, seed, value) for seed, value in enumerate(values)]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0.42, 0.43, 0.42), (0.38, 0.38, 0.39), AGREES),
        ((0.38, 0.38, 0.39), (0.42, 0.43, 0.42), DISAGREES),
        ((0.42, 0.30, 0.42), (0.38, 0.38, 0.39), UNTOLD),
        ((0.42, 0.43), (0.38, 0.38, 0.39), UNTOLD),
        ((0.42,), (0.38,), UNTOLD),
    ],
)
def test_a_claim_of_scores_needs_three_seeds_and_an_interval(
    ours: tuple[float, ...], theirs: tuple[float, ...], expected: str
) -> None:
    assert verdict([*of_seeds("sst5-ms", *ours), *of_seeds("sst5-standard", *theirs)], SST) == expected


def test_a_lower_error_is_the_better() -> None:
    lines = [*of_seeds("mirrored-2", 0.2, 0.21, 0.2), *of_seeds("mirrored-deep-hier-s-2", 0.5, 0.5, 0.51)]
    interval, seeds = measured(lines, MIRRORED)
    assert interval is not None
    assert (round(interval.estimate, 3), seeds) == (0.3, 3)
    assert verdict(lines, MIRRORED) == AGREES


def test_a_claim_of_several_sets_is_of_their_mean_over_seeds_that_all_have() -> None:
    lines = [*of_seeds("mr-ms", 0.6, 0.7, 0.8), *of_seeds("books-ms", 0.8, 0.9)]
    assert {seed: round(score, 6) for seed, score in scores(lines, ["mr-ms", "books-ms"]).items()} == {0: 0.7, 1: 0.8}
    assert scores(lines, ["mr-ms", "imdb-ms"]) == {}


def test_claims_are_counted_and_those_without_a_run_are_told() -> None:
    lines = [*of_seeds("sst5-ms", 0.42, 0.43, 0.42), *of_seeds("sst5-standard", 0.38, 0.38, 0.39)]
    told_of = claims(lines)
    assert "| multi-scale, SST |" in told_of[2]
    assert told_of[2].endswith("| 3 | agrees |")
    assert told_of[-1].startswith("Of 1 claims: 1 agrees, 0 disagrees, 0 cannot be told. Of ")
    other = Claim("d", "t", "n", (("sst5-ms", "sst5-full"),))
    assert claims(lines, [other])[-1] == "Of 1 more in `benchmarks/tasks/claims.py` a side has no run yet."


def test_a_row_has_mean_interval_and_seeds_below_its_baselines() -> None:
    table = results(of_seeds("sst5-ms", 0.41, 0.42, 0.43))
    assert table[0] == "### SST-5"
    assert [each.split(" | ")[1:3] for each in table[4:6]] == [["larger class", "0.250"], ["words", "0.380"]]
    assert table[6] == (
        "| `sst5-ms` | multi-scale | 0.420 | 0.395 to 0.445 | 0.410, 0.420, 0.430 | 0.430 | "
        f"{BY_NAME['sst5-ms'].steps} | 2.0 |"
    )
    assert results(of_seeds("sst5-ms", 0.41))[6].startswith("| `sst5-ms` | multi-scale | 0.410 |  | 0.410 |")


def test_commands_are_those_of_the_rows_with_what_they_share_once() -> None:
    listed = commands([*of_seeds("sst5-ms", 0.4), *of_seeds("sst2-canine", 0.6)])
    assert listed[1].startswith('O="--train.checkpoint_every_steps 100 ')
    assert "--init-from learning/runs/canine-s-SEED --output tasks/runs/sst2-canine-SEED " in listed[3]
    assert "--train.seed SEED $O" in listed[2]
    assert listed[2].count("--train.threads") == 0


@pytest.mark.parametrize("main", ["relative_mse", "f1", "accuracy"])
def test_a_row_is_judged_by_the_main_score_of_its_task(main: str) -> None:
    others = {"relative_mse": {"mse": 0.1}, "f1": {"accuracy": 0.9}, "accuracy": {"macro_f1": 0.3}}[main]
    assert main_score(line("sst5-ms", 0, 0.4, test={**others, main: 0.4})) == main


def test_a_set_of_texts_has_the_larger_class_and_regressions(tmp_path: Path) -> None:
    folder = tmp_path / "sst2"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"stsa.binary.{part}").write_text("1 a good film\n0 a bad film\n1 good acting\n1 so good\n" * 5)
    found = baselines(tmp_path, "sst2")["test"]
    assert found[LARGER_CLASS] == 0.75
    assert found[WORDS] == 1


def test_names_have_the_usual_tag_of_each_word(tmp_path: Path) -> None:
    folder = tmp_path / "swa"
    folder.mkdir()
    (folder / "train.txt").write_text("Ana B-PER\nlives O\n\nAna B-PER\n\nAna O\n\n")
    for part in ("dev", "test"):
        (folder / f"{part}.txt").write_text("Ana B-PER\nlives O\n\nBea B-PER\n\n")
    assert baselines(tmp_path, "swa")["dev"][FREQUENT_TAG] == pytest.approx(2 / 3)
    assert baselines(tmp_path, "mirrored summation, K = 2")["test"] == {CONSTANT: 1.0, NO_PAIRS: 1 / 7}


def test_a_run_leaves_its_line_and_is_not_done_again(tmp_path: Path) -> None:
    small = (("task.train_examples", "64"), ("task.dev_examples", "8"), ("task.test_examples", "8"))
    row = dataclasses.replace(BY_NAME["mirrored-2"], steps=1, options=(*BY_NAME["mirrored-2"].options, *small))
    folders = Folders(tmp_path / "data", runs=tmp_path / "runs")
    done = finetuned(Entry(row, 0), tmp_path, folders, Results(tmp_path / "results.jsonl"))
    assert (done["name"], done["row"], done["seed"], done["steps"]) == ("mirrored-2-0", "mirrored-2", 0, 1)
    assert done["overrides"]["task.pairs"] == "2"
    assert 0.5 < done["test"]["relative_mse"] < 2
    assert done["seconds"] >= done["step_seconds"] >= 0
    assert done["cpu_seconds"] > 0
    assert told(done).endswith("on test; best constant 1.000, best without pairs 0.143")


def test_a_run_whose_pretrained_run_is_missing_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--output", str(tmp_path / "tasks"), "--runs", str(tmp_path), "--only", "sst2-canine-0"]
    assert command.main(arguments) == 0
    assert "sst2-canine-0: left out; there is no finished run" in capsys.readouterr().out
    assert command.main([*arguments[:-1], "none"]) == 2


def test_the_page_has_the_tables_of_its_lines(tmp_path: Path) -> None:
    page, file = REPOSITORY / "docs" / "task_results.md", REPOSITORY / "docs" / "task_results.jsonl"
    text = page.read_text(encoding="utf-8")
    assert command.PAGE_MARK in text
    lines = Results(file).lines()
    if lines:
        assert tables(lines).strip() in text
    (tmp_path / "results.jsonl").write_text(json.dumps(line("sst5-ms", 0, 0.4)) + "\n")
    (tmp_path / "page.md").write_text(f"Head\n\n{command.PAGE_MARK}\n<!-- end of what is written -->\n")
    assert command.main(["--table", str(tmp_path / "results.jsonl"), "--write", str(tmp_path / "page.md")]) == 0
    assert "| `sst5-ms` | multi-scale | 0.400 |" in (tmp_path / "page.md").read_text()
