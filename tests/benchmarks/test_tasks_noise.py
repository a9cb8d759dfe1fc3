"""Noise in the test of fine-tuned runs: the entries of the queue wait for them, and their lines become one table."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.learning.claims import AGREES, DISAGREES, UNTOLD
from benchmarks.learning.results import Line, Results
from benchmarks.learning.work import NotReady
from benchmarks.tasks import __main__ as command
from benchmarks.tasks import work as tasks_work
from benchmarks.tasks.noise_table import BERT, BYTE2WORD, noise
from benchmarks.tasks.plan import Entry, Folders, NoiseEntry, NoiseRow, queue
from benchmarks.tasks.rows import NOISE_ROWS, ROWS
from benchmarks.tasks.tables import commands, results, tables
from benchmarks.tasks.work import done, told
from tokenfree.preprocess.common.errors import JobError
from tokenfree.train.tasks.examples.noise import IN_WORDS

RATES = {"none": 0.0, "drop": 0.1, "repeat": 0.2, "uppercase": 1.0, "random_case": 1.0, IN_WORDS: 1.0}
BY_NAME = {row.name: row for row in ROWS}


def line(row: str, seed: int, **scores: float) -> Line:
    """The line of an evaluation."""
    noisy = {scheme: {"rate": RATES[scheme], "accuracy": score} for scheme, score in scores.items()}
    return {"name": f"{row}-{seed}", "row": row, "seed": seed, "data": "x", "noise": noisy, "cpu_seconds": 10.0}


def of_seeds(row: str, **scores: tuple[float, ...]) -> list[Line]:
    """A line for each seed."""
    seeds = range(len(scores["none"]))
    return [line(row, seed, **{scheme: values[seed] for scheme, values in scores.items()}) for seed in seeds]


def cells(table: list[str], scheme: str) -> list[str]:
    """The row of a scheme."""
    (found,) = (each for each in table if each.startswith(f"| `{scheme}` |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_noise_comes_after_the_run_that_it_is_put_into() -> None:
    names = [entry.name for entry in queue(ROWS, NOISE_ROWS)]
    assert len(set(names)) == len(names) == 3 * (len(ROWS) + len(NOISE_ROWS))
    for seed in range(3):
        for side in ("byte2word", "bert"):
            assert names.index(f"sst2-{side}-{seed}") < names.index(f"sst2-noise-{side}-{seed}")
    assert names.index("sst2-noise-bert-0") < names.index("sst5-ms-1")


def test_a_run_is_tested_at_the_rates_of_the_paper_with_its_own_draws() -> None:
    typed = NoiseEntry(NOISE_ROWS[1], 2).command(Folders("data", "pretrained", "runs"))
    assert typed == (
        "tokenfree analyze noise runs/sst2-bert-2 --data data/sst2/stsa.binary.test --strengths 1 --seed 2 --json"
    )


def test_noise_without_its_run_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--output", str(tmp_path), "--runs", str(tmp_path), "--only", "sst2-noise-bert-0"]
    assert command.main(arguments) == 0
    said = capsys.readouterr().out
    assert said == f"sst2-noise-bert-0: left out; there is no finished run {tmp_path}/runs/sst2-bert-0\n"
    assert Results(tmp_path / "results.jsonl").lines() == []


def test_noise_waits_for_a_run_of_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fine-tuned run is not there when the queue is read, but when its noise has its turn: seed 0. Where it failed,
    the noise is left out: seed 1."""
    runs = tmp_path / "runs"
    for seed in (0, 1):
        (tmp_path / f"bert-{seed}").mkdir()
        (tmp_path / f"bert-{seed}" / "result.json").write_text("{}")
    monkeypatch.setattr(command, "prepare", lambda folder, names: None)

    def call(arguments: list[str], log: Path, *, output: Path | None = None) -> None:
        if output is None:
            folder = Path(arguments[arguments.index("--output") + 1])
            folder.mkdir(parents=True)
            if folder.name != "sst2-bert-0":
                raise JobError("it diverged")
            result = {"best_step": 1, "dev": {"accuracy": 0.5}, "test": {"accuracy": 0.5}}
            (folder / "result.json").write_text(json.dumps(result))
            (folder / "metrics.jsonl").write_text("")
        else:
            output.parent.mkdir(exist_ok=True)
            rows = [{"scheme": "none", "rate": 0.0, "score": 0.75}, {"scheme": "drop", "rate": 0.1, "score": 0.5}]
            output.write_text(json.dumps({"main": "accuracy", "examples": 8, "rows": rows}))

    monkeypatch.setattr(tasks_work, "call", call)
    monkeypatch.setattr(tasks_work, "baselines", lambda folder, name: {"dev": {}, "test": {}})
    arguments = ["--output", str(tmp_path), "--runs", str(tmp_path), "--only", "sst2-*bert-[01]"]
    assert command.main(arguments) == 1
    said = capsys.readouterr().out.splitlines()
    assert any(each.endswith("sst2-noise-bert-0: none 0.750, drop 0.500") for each in said)
    assert any(
        each.endswith(f"sst2-noise-bert-1: left out; there is no finished run {runs}/sst2-bert-1") for each in said
    )
    names = Results(tmp_path / "results.jsonl").names()
    assert names == {"sst2-bert-0", "sst2-noise-bert-0"}


def test_a_run_that_was_finetuned_leaves_a_line_of_its_noise(tmp_path: Path) -> None:
    small = (("model.width", "32"), ("model.trunk.layers", "1"), ("train.length", "32"), ("train.global_batch", "4"))
    row = dataclasses.replace(BY_NAME["sst5-standard"], name="tiny", data="sst2", steps=1)
    row = dataclasses.replace(row, options=(*row.options, *small))
    folders = Folders(tmp_path / "data", runs=tmp_path / "runs")
    (tmp_path / "data" / "sst2").mkdir(parents=True)
    for part in ("train", "dev", "test"):
        file = tmp_path / "data" / "sst2" / f"stsa.binary.{part}"
        file.write_text("1 a good film\n0 a bad film\n1 good acting\n1 so good\n" * 2)
    entry, lines = NoiseEntry(NoiseRow("tiny-noise", row), 0), Results(tmp_path / "results.jsonl")
    with pytest.raises(NotReady, match=r"there is no finished run .*runs/tiny-0"):
        done(entry, tmp_path, folders, lines)
    clean = done(Entry(row, 0), tmp_path, folders, lines)
    found = done(entry, tmp_path, folders, lines)
    assert (found["name"], found["row"], found["seed"]) == ("tiny-noise-0", "tiny-noise", 0)
    assert (found["finetuned"], found["examples"]) == ("tiny-0", 8)
    assert found["data"] != row.data  # whose lines have baselines
    assert {scheme: each["rate"] for scheme, each in found["noise"].items()} == {
        scheme: rate for scheme, rate in RATES.items() if scheme != IN_WORDS
    }
    assert found["noise"]["none"]["accuracy"] == clean["test"]["accuracy"]
    assert found["cpu_seconds"] > 0
    assert told(found).startswith(f"none {clean['test']['accuracy']:.3f}, drop ")


def test_the_table_has_means_falls_and_a_verdict_by_scheme() -> None:
    ours = of_seeds(BYTE2WORD, none=(0.70, 0.71, 0.72), drop=(0.68, 0.69, 0.70), uppercase=(0.5, 0.51, 0.52))
    theirs = of_seeds(BERT, none=(0.74, 0.75, 0.76), drop=(0.60, 0.61, 0.62), uppercase=(0.6, 0.61, 0.62))
    table = noise([*ours, *theirs])
    assert cells(table, "drop") == [
        "`drop`", "10%", "0.690 (0.665 to 0.715)", "0.020 (0.020 to 0.020)", "subword BERT", "0.610 (0.585 to 0.635)",
        "0.140 (0.140 to 0.140)", "+0.080", "+0.057 to +0.103", "+0.120", "+0.120 to +0.120", "3", AGREES,
    ]  # fmt: skip
    assert cells(table, "uppercase")[-1] == DISAGREES
    clean = ["0.710 (0.685 to 0.735)", "", "subword BERT", "0.750 (0.725 to 0.775)", ""]
    assert cells(table, "none")[2:] == [*clean, "-0.040", "-0.063 to -0.017", "", "", "3", ""]
    assert table[-1] == "Of 2 claims: 1 agrees, 1 disagrees, 0 cannot be told."


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((0.7, 0.71), (0.5, 0.51, 0.52)), ((0.7,), (0.5,)), ((0.7, 0.5, 0.6), (0.5, 0.51, 0.52))],
)
def test_fewer_seeds_or_an_interval_with_zero_tell_nothing(ours: tuple[float, ...], theirs: tuple[float, ...]) -> None:
    table = noise([*of_seeds(BYTE2WORD, none=ours, drop=ours), *of_seeds(BERT, none=theirs, drop=theirs)])
    assert cells(table, "drop")[-2:] == [str(min(len(ours), len(theirs))), UNTOLD]


def test_noise_after_the_words_are_parted_stands_beside_that_before() -> None:
    lines = of_seeds(BYTE2WORD, none=(0.7, 0.71, 0.72), random_case=(0.5, 0.51, 0.52), **{IN_WORDS: (0.69, 0.7, 0.71)})
    table = noise(lines)
    found = cells(table, IN_WORDS)
    assert (found[4], found[7], found[-1]) == ("Byte2Word, `random_case`", "+0.190", AGREES)
    assert not [each for each in table if each.startswith("| `random_case` |")]  # BERT has no run


def test_the_page_has_the_table_only_with_lines_of_noise() -> None:
    row = {"name": "sst2-bert-0", "row": "sst2-bert", "seed": 0, "data": "sst2", "cpu_seconds": 120.0}
    scores = {"dev": {"accuracy": 0.7}, "test": {"accuracy": 0.7}, "baselines": {"dev": {}, "test": {}}}
    clean: list[Line] = [{**row, **scores}]
    assert "## With noise" not in tables(clean)
    lines = [*clean, *of_seeds(BYTE2WORD, none=(0.7,)), *of_seeds(BERT, none=(0.7,))]
    assert "\n\n## With noise\n\n| noise | struck | Byte2Word |" in tables(lines)
    assert results(lines)[:-1] == results(clean)[:-1]
    listed = "tokenfree analyze noise tasks/runs/sst2-bert-SEED --data tasks/data/sst2/stsa.binary.test"
    assert f"{listed} --strengths 1 --seed SEED --json" in commands(lines)


def test_the_list_keeps_names_and_commands_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 * (len(ROWS) + len(NOISE_ROWS))
    for entry, shown in zip(queue(ROWS, NOISE_ROWS), said, strict=True):
        assert shown.split()[:2] == [entry.name, "tokenfree"]
    assert len({each.index("tokenfree") for each in said}) == 1


def test_noise_is_in_all_parts_of_the_rows_that_are_trained_with_it() -> None:
    rows = [row for row in ROWS if "task.noise.train" in row.overrides]
    schemes = [row.overrides["task.noise.train"] for row in rows]
    assert Counter(schemes) == {scheme: 1 if scheme == IN_WORDS else 2 for scheme in RATES if scheme != "none"}
    for row in rows:
        clean = BY_NAME[f"sst2-{row.pretrained}"]
        noise_keys = {f"task.noise.{part}": row.overrides["task.noise.train"] for part in ("train", "evaluation")}
        assert row.overrides == {**clean.overrides, **noise_keys}
        assert (row.data, row.steps, row.name.endswith(f"-{row.pretrained}")) == (clean.data, clean.steps, True)
