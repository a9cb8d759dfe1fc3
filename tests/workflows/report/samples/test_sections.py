"""What the page shows of a real run: guesses for hidden pieces, and windows of its data."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.train.conftest import RECIPE, write_corpus
from tests.workflows.report.test_report import Page, make_run, make_sweep, make_trial
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows.report.write import write_report

GUESSES, WINDOWS = "Guesses for hidden pieces", "Sample windows"
TEXT = "<b>bold</b> & שלום עולם, this is a text of <some> length.\nIts lines end.\n\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with markup and with Hebrew."""
    texts = [(f"text {number}", f"{TEXT * 3}Number {number}.") for number in range(40)]
    return Path(write_corpus(tmp_path_factory.mktemp("data"), texts, max_characters=50, vocabulary=300))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    mapping = {**RECIPE, "objective": {"name": "canine_s"}}
    mapping["train"] = {**RECIPE["train"], "steps": 1, "validate_every_steps": 1}
    recipe = build(PretrainRecipe, mapping, source="test")
    return Path(pretrain(recipe, str(data), str(tmp_path_factory.mktemp("runs") / "tiny")).run)


def written(*folders: Path, output: Path) -> tuple[str, Page]:
    text = write_report([str(folder) for folder in folders], str(output / "report.html")).read_text(encoding="utf-8")
    return text, Page(text)


def test_a_run_shows_its_guesses_and_its_windows(run: Path, data: Path, tmp_path: Path) -> None:
    text, page = written(run, output=tmp_path)
    assert page.headings.count(GUESSES) == page.headings.count(WINDOWS) == 1
    rows = page.tables["Hidden pieces: tiny"]
    assert rows[0] == ["held-out text", "hidden", "1", "2", "3", "4", "5"]
    validation = load_manifest(str(data)).splits["validation"].shards[0].rows
    assert len(rows) == 1 + min(12, validation)
    for around, hidden, *guesses in rows[1:]:
        before, after = around.split("█")
        whole = (before.strip("…") + hidden + after.strip("…")).replace("⏎ ", "\n")
        assert whole in TEXT * 3 + "Number" or "Number" in whole
        right = [guess for guess in guesses if guess.startswith("✓")]
        assert [guess.split()[1] for guess in right] == [hidden] * len(right)
        assert all(guess.endswith("%") or guess == "–" for guess in guesses)
    first = sum(row[2].startswith("✓") for row in rows[1:])
    among = sum(any(cell.startswith("✓") for cell in row) for row in rows[1:])
    assert f"Step 1: {first} of {len(rows) - 1} right at first, {among} among the 5 best (✓)." in page.text
    windows = [rows for caption, rows in page.tables.items() if caption.startswith("Window ")]
    assert len(windows) == 3
    for rows in windows:
        assert [row[0] for row in rows] == ["", "text", "words", "subwords", "masks"]
        assert rows[1][1] == rows[2][1]
        assert rows[1][1].startswith(rows[3][1].split("<")[0])  # from there on runs of bytes are drawn in <>
        assert len(rows[4][1]) == len(rows[1][1])
        assert "█" in rows[4][1]
    assert text.count('<span class="sample" dir="auto">') == len(page.tables["Hidden pieces: tiny"]) - 1 + 4 * 3
    assert "<some>" not in text
    assert "<bdi>" in text
    assert written(run, output=tmp_path)[0] == text


def test_data_are_shown_once(run: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    _, page = written(run, data, tmp_path / "other", output=tmp_path)
    assert {"Hidden pieces: tiny", "Hidden pieces: other"} <= page.tables.keys()
    assert sum(caption.startswith("Window ") for caption in page.tables) == 3
    assert page.headings.count(data.name) == 1


def test_data_that_are_elsewhere(run: Path, data: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    config = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump({**config, "data": "/nowhere/else"}))
    _, page = written(moved, output=tmp_path)
    line = "None are shown: its data are not in /nowhere/else; give their directory to tokenfree report too."
    assert line in page.text
    assert WINDOWS not in page.headings
    assert "Hidden pieces: moved" in written(moved, data, output=tmp_path)[1].tables


def test_a_run_that_cannot_be_asked_says_why(run: Path, data: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "broken")
    (file,) = broken.glob("checkpoints/step_*/model.safetensors")
    file.write_bytes(b"damaged" + file.read_bytes()[7:])
    with pytest.raises(JobError, match=r"is damaged: model\.safetensors does not match its hash"):
        written(broken, output=tmp_path)
    bare = make_run(tmp_path / "bare")
    assert GUESSES not in written(bare, output=tmp_path)[1].headings
    torn = shutil.copytree(data, tmp_path / "torn")
    shutil.rmtree(torn / "train")
    _, page = written(torn, output=tmp_path)
    assert "None are shown: " in page.text
    assert WINDOWS in page.headings


def test_the_best_trial_of_a_sweep_is_asked(run: Path, data: Path, tmp_path: Path) -> None:
    trials = [make_trial(number, 10, loss) for number, loss in enumerate((5.0, 4.0, 6.0))]
    sweep = make_sweep(tmp_path / "knobs", trials)
    for number in range(3):
        shutil.copytree(run / "checkpoints", sweep / "trials" / f"trial_{number:03d}" / "checkpoints")
    config = yaml.safe_load((run / "config.yaml").read_text())
    (sweep / "best.yaml").write_text(yaml.safe_dump(config["recipe"]))
    settings = yaml.safe_load((sweep / "sweep.yaml").read_text())
    (sweep / "sweep.yaml").write_text(
        yaml.safe_dump({**settings, "fingerprints": {"sweep": "00", "data": config["manifest"]}})
    )
    _, page = written(sweep, output=tmp_path)
    assert "a sweep tells no place of its data; give their directory" in page.text
    _, page = written(sweep, data, output=tmp_path)
    assert [caption for caption in page.tables if caption.startswith("Hidden")] == [
        "Hidden pieces: knobs: trial_001, the best trial"
    ]
