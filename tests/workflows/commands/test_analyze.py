"""`tokenfree analyze`: tables, files by their ending, and mistakes in one line."""

import csv
import json
import re
from pathlib import Path

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.analyses import similarity
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.parallel import model_tensors
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import CheckpointState
from tokenfree.train.runs.config import RunConfig, open_run
from tokenfree.workflows import cli
from tokenfree.workflows.commands import analyze

# Noise is for fine-tuned runs: test_finetune_command.py.
ANALYSES = [name for name in analyze.ANALYSES if name != "noise"]
MODEL = {
    "width": 48,
    "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 128},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
    "trunk": {
        "layers": 2,
        "heads": 12,
        "inner_width": 32,
        "positions": {"name": "diet_abs", "max_units": 64},
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with fresh weights, of as many heads as a base model has."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    recipe = build(PretrainRecipe, {"model": MODEL, "train": {"length": 64}}, source="test")
    torch.manual_seed(0)
    tensors = {f"encoder.{name}": tensor for name, tensor in model_tensors(recipe.model.build()).items()}
    open_run(folder, RunConfig(recipe, "made by a test", manifest=""))
    state = CheckpointState(step=0, seed=0, recipe="", manifest="", vocabulary=None, loader={}, world_size=1)
    checkpoints.write(
        folder / "checkpoints" / checkpoints.checkpoint_name(0), {checkpoints.MODEL: tensors}, state
    )
    return str(folder)


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "REPLICATES", 50)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each analysis the file that it reads."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "texts").write_text(
        "Some words.\nå text of more words than that, and one more.\n", encoding="utf-8"
    )
    stems = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrt"]
    (folder / "art").write_text(
        "".join(f"{stem}\t{stem}{ending}\n" for stem in stems for ending in ("s", "ed", "ing"))
    )
    return {name: str(folder / ("art" if name == "similarity" else "texts")) for name in ANALYSES}


@pytest.mark.parametrize("name", ANALYSES)
def test_tables_fit_and_files_hold_the_same(
    name: str, run: str, data: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["analyze", name, run, "--data", data[name], "--size", "20"]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.replace(data[name], "data").splitlines()
    assert len(lines) >= 4
    assert max(map(len, lines[1:])) <= 90

    assert cli.main([*arguments, "--json", "--output", str(tmp_path / "found.json")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["analysis"] == name
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == found

    assert cli.main([*arguments, "--output", str(tmp_path / "new" / "found.csv")]) == 0
    with (tmp_path / "new" / "found.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [{**row, "step": found["step"]} for row in found["rows"]]
    assert rows == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in expected
    ]

    kinds = {"png": b"\x89PNG", "svg": b"<?xml"}
    assert cli.main([*arguments, "--output", *(str(tmp_path / f"found.{kind}") for kind in kinds)]) == 0
    for kind, start in kinds.items():
        assert (tmp_path / f"found.{kind}").read_bytes().startswith(start)
    names = ["found.json", "found.png", "found.svg", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_rows_of_heads_are_all_there(
    run: str, data: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("attention", "ranks"):
        assert cli.main(["analyze", name, run, "--data", data[name], "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [(row["layer"], row["head"]) for row in rows] == [(a, b) for a in (1, 2) for b in range(1, 13)]


def test_of_many_rows_the_first_are_shown(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenfree.workflows.work.analyze._MAX_ROWS", 4)
    path = tmp_path / "text"
    path.write_text("aaa ббб γγ א", encoding="utf-8")
    assert cli.main(["analyze", "collisions", run, "--data", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Cyrillic" in shown
    assert "Hebrew" not in shown
    assert "and 2 more" in shown


MISTAKES = [
    ("similarity RUN", "similarity needs --data"),
    ("frobnicate RUN", "invalid choice: 'frobnicate'"),
    ("attention", "required: RUN"),
    ("attention RUN --vectors down", "--vectors is for similarity alone"),
    ("ranks RUN --seed 1", "--seed is for similarity and noise alone"),
    ("ranks RUN --strengths 1", "--strengths is for noise alone"),
    (
        "noise RUN --vocabulary texts",
        "--vocabulary is for similarity and attention and ranks and collisions alone",
    ),
    ("noise RUN --strengths 1 0", "--strengths 1 0: give numbers above 0"),
    ("noise RUN", "is a run of pretraining, where one of fine-tuning is needed"),
    ("similarity RUN --data art --seed -1", "argument --seed: -1: give 0 or more"),
    ("attention RUN --data texts texts", "reads one data directory or file, not 2"),
    ("attention RUN --size 0", "--size 0: give at least 1"),
    ("similarity RUN --data art --size 9", "--size 9: give at least 10"),
    ("attention RUN --data texts --output found.pdf", "use one of .json, .csv, .png, .svg"),
    ("attention RUN --data texts --output .", "the ending says what is written"),
    ("attention RUN", "name texts with --data PATH"),
    ("attention RUN --data nowhere", "nowhere: there is no such file. Check the path"),
    ("attention nowhere --data texts", "nowhere holds no run"),
    ("similarity RUN --data texts", "texts:1: no tab"),
    ("collisions RUN --dta texts", "did you mean --data?"),
]


@pytest.mark.parametrize(("words", "told"), MISTAKES)
def test_mistakes_are_one_line_and_status_2(
    words: str, told: str, run: str, data: dict[str, str], capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    places = {"RUN": run, "texts": data["attention"], "art": data["similarity"]}
    try:
        status = cli.main(["analyze", *(places.get(word, word) for word in words.split())])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status == 2
    assert error.count("\n") == 1
    assert re.search(re.escape(told), error)
    assert not list(tmp_path.iterdir())
