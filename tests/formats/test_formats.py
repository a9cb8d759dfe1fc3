"""What released versions wrote is opened by the code of today: data, runs, fine-tuned ones, sweeps of each format."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import tokenfree
from tests.pipelines.conftest import write_corpus
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.stored_files import HASHES
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.records import SCHEMA_VERSION
from tokenfree.train.runs.config import RUN_FORMAT, SWEEP_FORMAT, read_config
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library

KEPT = sorted(
    (path for path in Path(__file__).parent.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
)


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders of one format, which is the working directory: nothing lies where it was made."""
    folder = tmp_path / "kept"
    shutil.copytree(request.param, folder)
    monkeypatch.chdir(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that ends well."""
    assert cli.main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_formats_of_today_are_kept() -> None:
    newest = KEPT[-1]
    assert load_manifest(str(newest / "data")).schema_version == SCHEMA_VERSION
    for run in ("run", "finetuned"):
        assert yaml.safe_load((newest / run / "config.yaml").read_text())["format"] == RUN_FORMAT
    assert yaml.safe_load((newest / "sweep" / "sweep.yaml").read_text())["format"] == SWEEP_FORMAT
    assert sum(path.stat().st_size for path in newest.rglob("*") if path.is_file()) < 350_000


@pytest.mark.parametrize("name", ["data", "run", "finetuned", "sweep"])
def test_each_is_found_good(kept: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    found = json.loads(said(capsys, "verify", name, "--json"))
    assert found["good"]
    assert found["unhashed"] == []


def test_data_are_shown_and_read(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = load_manifest("data")
    assert json.loads(said(capsys, "inspect", "data", "--json"))
    for split, of in manifest.splits.items():
        windows = list(tokenfree.load_windows("data", split, smoothing=1.0))
        assert len(windows) == of.rows
        assert all(window["text"] for window in windows)


def test_data_are_complete(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(Path("books.jsonl"), num_documents=8)
    settings = ["--window.max_characters", "60", "--shard_characters", "3000", "--validation_fraction", "0.2"]
    vocabulary = ["--vocabulary.size", "320", "--vocabulary.sample_characters", "20000"]
    given = ["--books", "books.jsonl", *settings, *vocabulary, "--vocabulary.character_coverage", "0.98"]
    before = Path("data/manifest.json").read_bytes()
    assert "already complete" in said(capsys, "preprocess", *given, "--output", "data")
    assert Path("data/manifest.json").read_bytes() == before


def test_a_run_is_used(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tokenfree.load_encoder("run")(["rain falls"]).mean.isfinite().all()
    result = json.loads(Path("run/result.json").read_text())
    found = json.loads(said(capsys, "evaluate", "run", "--data", "data", "--json"))
    assert found["validation_loss"] == pytest.approx(result["validation_loss"], rel=1e-4)
    said(capsys, "report", "run", "sweep", "--output", "page.html")
    assert "trial_001" in Path("page.html").read_text()


def test_a_finetuned_run_is_used(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [json.loads(line) for line in Path("finetuned/predictions/dev.jsonl").read_text().splitlines()]
    result = json.loads(Path("finetuned/result.json").read_text())
    found = json.loads(said(capsys, "evaluate", "finetuned", "--data", "examples.tsv", "--json"))
    assert {name: found[name] for name in result["dev"]} == pytest.approx(result["dev"])
    texts = [line.split("\t")[0] for line in Path("examples.tsv").read_text().splitlines()[1:]]
    lines = said(capsys, "predict", "finetuned", *texts, "--json").splitlines()
    for text, line, known in zip(texts, map(json.loads, lines), before, strict=True):
        assert (line["text"], line["label"]) == (text, known["label"])
        assert line["probabilities"] == pytest.approx(known["probabilities"], abs=1e-4)
    assert tokenfree.load_encoder("finetuned")(["rain falls"]).mean.isfinite().all()
    said(capsys, "report", "finetuned", "--output", "page.html")
    assert "classification" in Path("page.html").read_text()


def test_a_finetuned_run_goes_on(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load(Path("finetuned/config.yaml").read_text())
    Path("recipe.yaml").write_text(yaml.safe_dump(config["recipe"]))
    given = ["--train", "examples.tsv", "--dev", "examples.tsv", "--init-from", "run"]
    command = ["finetune", "recipe.yaml", *given, "--output", "finetuned"]
    assert "already complete" in said(capsys, *command)
    result = json.loads(Path("finetuned/result.json").read_text())
    Path("finetuned/result.json").unlink()  # killed before its end
    said(capsys, *command)
    again = json.loads(Path("finetuned/result.json").read_text())
    assert {name: again[name] for name in result} == result
    assert json.loads(said(capsys, "verify", "finetuned", "--json"))["good"]


def test_a_run_goes_on(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    Path("recipe.yaml").write_text(yaml.safe_dump(config["recipe"]))
    command = ["pretrain", "recipe.yaml", "--data", "data", "--output", "run"]
    steps = config["recipe"]["train"]["steps"]
    assert f"already complete ({steps} steps)" in said(capsys, *command)
    said(capsys, *command, "--extend-to", str(steps + 1))
    assert json.loads(Path("run/result.json").read_text())["steps"] == steps + 1
    assert yaml.safe_load(Path("run/config.yaml").read_text())["format"] == RUN_FORMAT
    assert json.loads(said(capsys, "verify", "run", "--json"))["good"]


def test_a_sweep_is_complete(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = yaml.safe_load(Path("sweep/sweep.yaml").read_text())["recipe"]
    before = Path("sweep/sweep.csv").read_bytes()
    sweep = build(SweepRecipe, library.resolve_sweep(recipe), source="kept")
    result = run_sweep(sweep, "data", "sweep")
    assert result.already_complete
    assert [trial.state for trial in result.trials] == ["finished", "finished"]
    assert Path("sweep/sweep.csv").read_bytes() == before
    assert json.loads(said(capsys, "verify", "sweep", "--json"))["good"]


def test_folders_without_a_number_are_of_format_1(kept: Path) -> None:
    for path in (Path("run/config.yaml"), Path("finetuned/config.yaml"), Path("sweep/sweep.yaml")):
        path.with_name(HASHES).unlink()
        path.write_text(path.read_text().removeprefix("format: 1\n"))
        assert "format" not in yaml.safe_load(path.read_text())
    assert read_config("run").recipe.train.steps == 4
    assert cli.main(["report", "run", "finetuned", "sweep", "--output", "page.html"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        "evaluate run --data data",
        "pretrain recipe.yaml --data data --output run",
        "report run --output page.html",
        "verify run",
        "evaluate finetuned --data examples.tsv",
        "predict finetuned snow",
        "report finetuned --output page.html",
        "verify finetuned",
        "report sweep --output page.html",
        "verify sweep",
        "sweep sweep.yaml --data data --output sweep",
    ],
)
def test_a_later_format_is_refused(kept: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    copies = {
        "run/config.yaml": "recipe.yaml",
        "finetuned/config.yaml": "other.yaml",
        "sweep/sweep.yaml": "sweep.yaml",
    }
    for path, copy in ((Path(name), copy) for name, copy in copies.items()):
        mapping = yaml.safe_load(path.read_text())
        Path(copy).write_text(yaml.safe_dump(mapping["recipe"]))
        path.write_text(yaml.safe_dump({**mapping, "format": 99, "recipe": ["of another kind"]}))
        path.with_name(HASHES).unlink()
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert cli.main(words.split()) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert (
        ": format 99 is not known here (the newest known: 1); install the tokenfree that wrote it, or a"
        in told
    )
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("number", ["0", "-1", "one", "1.5", "null"])
def test_a_number_that_is_none_is_damage(kept: Path, number: str) -> None:
    path = Path("run/config.yaml")
    path.write_text(path.read_text().replace("format: 1\n", f"format: {number}\n"))
    path.with_name(HASHES).unlink()
    with pytest.raises(UserError, match=r"config.yaml: damaged, format"):
        read_config("run")
