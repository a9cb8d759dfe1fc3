"""The commands of a fine-tuned run as a user gives them: finetune, evaluate, predict."""

import json
from pathlib import Path

import pytest

from tokenfree.train.analyses import noise
from tokenfree.train.tasks import metrics
from tokenfree.workflows import cli

SMALL = [
    *(
        "--model.width",
        "16",
        "--model.trunk.layers",
        "1",
        "--model.trunk.heads",
        "2",
        "--train.length",
        "120",
    ),
    *(
        "--train.steps",
        "2",
        "--train.global_batch",
        "4",
        "--train.validate_every_steps",
        "1",
        "--train.threads",
        "1",
    ),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with texts and tagged sentences."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{'good' if n % 2 else 'bad'} day {n},{'plus' if n % 2 else 'minus'}\n" for n in range(8)]
    Path("texts.csv").write_text("text,label\n" + "".join(lines))
    Path("names.txt").write_text("Ana B-PER\nRuiz I-PER\nsaw O\nRome B-LOC\n. O\n\n" * 4)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a command prints."""
    assert cli.main(list(arguments)) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_from_files_to_labels(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        "finetune",
        "classification",
        "--train",
        "texts.csv",
        "--dev",
        "texts.csv",
        "--test",
        "texts.csv",
        *SMALL,
    ]
    assert "labels: minus, plus" in told(capsys, *given, "--output", "run", "--dry-run")
    assert not Path("run").exists()
    said = told(capsys, *given, "--output", "run")
    assert said.startswith("dev   accuracy ")
    assert "\n      baseline: accuracy 0.5000 (larger class), 1.0000 (character n-grams)\n" in said
    assert "\ntest  accuracy " in said
    assert "run/checkpoints/step_" in said
    assert "already complete (2 steps)" in told(capsys, *given, "--output", "run")
    scores = json.loads(told(capsys, "evaluate", "run", "--data", "texts.csv", "--json"))
    assert scores["accuracy"] == json.loads(Path("run/result.json").read_text())["test"]["accuracy"]
    assert "accuracy" in told(capsys, "evaluate", "run", "--data", "texts.csv")
    Path("raw.txt").write_text("a good day\n\nanother\n")
    lines = told(capsys, "predict", "run", "one text", "raw.txt", "--json").splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["one text", "a good day", "another"]
    assert set(json.loads(lines[0])) == {"step", "text", "label", "probabilities"}
    assert "%" in told(capsys, "predict", "run", "one text").splitlines()[1]


def test_a_large_set_is_sampled_and_a_constant_model_named(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_LINES", 6)
    given = ["--train", "texts.csv", "--dev", "texts.csv", "--train.learning_rate", "1e-9", "--output", "run"]
    given += ["--model.neighbours.name", "none", "--train.seed", "1"]
    lines = told(capsys, "finetune", "classification", *given, *SMALL).splitlines()
    assert lines[1].endswith(", fitted to 6 of 8 lines, scored on 6 of 8 lines")
    result = json.loads(Path("run/result.json").read_text())
    assert result["only_label"]["dev"] in ("minus", "plus")
    note = f"  note        on dev, the model predicts one label only: {result['only_label']['dev']}"
    assert note in lines
    assert note in told(capsys, "finetune", "--output", "run").splitlines()


def test_names_with_their_places(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "finetune", "ner", "--train", "names.txt", "--dev", "names.txt", "--output", "run", *SMALL)
    text = "  Ana Ruiz\tsaw  Rome."
    found = json.loads(told(capsys, "predict", "run", text, "--json"))
    assert found["words"] == ["Ana", "Ruiz", "saw", "Rome", "."]
    for span in found["spans"]:
        assert text[span["start"] : span["end"]] == span["text"]
    assert found["tags"] != ["O"] * 5 or found["spans"] == []
    told(capsys, "predict", "run", text)


def test_a_table_and_a_picture_of_noise(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "REPLICATES", 5)
    given = ["--train", "texts.csv", "--output", "run", *SMALL, "--task.noise.train", "drop"]
    told(capsys, "finetune", "classification", *given, "--dev", "texts.csv")
    lines = told(capsys, "analyze", "noise", "run", "--output", "noise.csv", "noise.svg").splitlines()
    assert "step 1, task classification" in lines[0]
    assert "trained with drop" in lines[0]
    assert len(lines) == 3 + 11 + 2  # "none" and schemes at their strengths
    assert Path("noise.csv").read_text().count("\n") == 1 + 11
    picture = Path("noise.svg").read_text()
    assert all(
        f">{name}<" in picture for name in ("without noise", "drop", "repeat", "uppercase", "random case")
    )
    found = json.loads(told(capsys, "analyze", "noise", "run", "--strengths", "3", "--seed", "5", "--json"))
    assert {row["scheme"]: row["rate"] for row in found["rows"]} == {
        "none": 0, "drop": 0.3, "repeat": 0.6, "uppercase": 1, "random_case": 1
    }  # fmt: skip
    told(capsys, "finetune", "classification", "--train", "texts.csv", "--output", "without_dev", *SMALL)
    assert "--data is missing" in told(capsys, "analyze", "noise", "without_dev", status=2)
    assert "nothing.csv: there is no such file" in told(
        capsys, "analyze", "noise", "run", "--data", "nothing.csv", status=2
    )


def test_what_has_no_noise_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--task.{split}_examples" for split in ("train", "dev", "test")]
    options = [word for name in (*sizes, "--train.global_batch") for word in (name, "4")]
    told(capsys, "finetune", "mirrored-summation", "--output", "run", "--train.steps", "1", *options)
    error = told(capsys, "analyze", "noise", "run", status=2)
    assert "mirrored_summation takes no noise" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "nowhere.csv"], "nowhere.csv: there is no such file"),
        ([], "give a file of them as --train"),
        (["--train", "texts.csv", "--task.representation", "average"], "task.representation"),
        (["--train", "texts.csv", "--workers", "0"], "--workers 0"),
        (["--train", "texts.csv", "--init-from", "nowhere"], "--init-from nowhere: this holds neither a run"),
        (
            ["--train", "texts.csv", "--vocabulary", "x"],
            "--vocabulary x: this model reads characters; leave it out",
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = told(capsys, "finetune", "classification", "--output", "run", *arguments, *SMALL, status=2)
    assert message in error
    assert error.count("\n") == 1
    assert not Path("run").exists()


def test_a_task_that_makes_its_examples_needs_no_files(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [*("--task.length", "8", "--task.size", "4", "--task.pairs", "2", "--task.train_examples", "64")]
    small += ["--task.test_examples", "32", "--task.dev_examples", "16", "--model.embedder.size", "4"]
    small += ["--model.width", "10", "--train.length", "9", "--train.steps", "2", "--train.threads", "1"]
    said = told(capsys, "finetune", "mirrored-summation", "--output", "run", *small)
    assert said.rstrip().endswith("tokenfree evaluate run")
    assert "relative mse" in told(capsys, "evaluate", "run")
    told(capsys, "finetune", "classification", "--train", "texts.csv", "--output", "texts", *SMALL)
    assert "--data is missing. Give a file of examples for classification" in told(
        capsys, "evaluate", "texts", status=2
    )


def test_a_run_resumes_by_its_folder_alone(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "RECIPE: missing, and run has no config.yaml" in told(
        capsys, "finetune", "--output", "run", status=2
    )
    given = ["--train", "texts.csv", "--dev", "texts.csv"]
    told(capsys, "finetune", "classification", *given, *SMALL, "--output", "first")
    start = ["--init-from", "first", "--model.trunk.dropout", "0.2", *SMALL[6:]]
    told(capsys, "finetune", "classification", *given, *start, "--output", "run")
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    run = str(files / "run")
    assert "already complete (2 steps)" in told(capsys, "finetune", "--output", run)
    assert "already complete (2 steps)" in told(capsys, "finetune", f"{run}/config.yaml", "--output", run)
    assert "labels: minus, plus" in told(capsys, "finetune", "--output", run, "--dry-run")
    assert "train.seed is 4, was 0" in told(
        capsys, "finetune", "--output", run, "--train.seed", "4", status=2
    )
    (files / "texts.csv").rename("moved.csv")
    error = told(capsys, "finetune", "--output", run, status=2)
    assert f"{files}/texts.csv: there is no such file" in error
    assert "already complete" in told(
        capsys, "finetune", "--output", run, "--train", "moved.csv", "--dev", "moved.csv"
    )
    Path("moved.csv").write_text("text,label\nnew,plus\nold,minus\n")
    assert "the data differ" in told(
        capsys, "finetune", "--output", run, "--train", "moved.csv", "--dev", "moved.csv", status=2
    )
