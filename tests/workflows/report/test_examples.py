"""What the page shows of a real model: whether it uses its context, and predictions of hidden words."""

import pydoc_data.topics as topics
import shutil
from pathlib import Path

import pytest
import yaml

from tests.train.conftest import RECIPE, write_corpus
from tests.workflows.report.test_report import PROBE, USES, Page, make_run, make_sweep, make_trial
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows.report.page import write_report

TEXT = "<b>bold</b> & שלום עולם, this is a text of <some> length.\nIts lines end.\n\n"
TEXTS = [(name, f"{TEXT}{text[:1500]}") for name, text in sorted(topics.topics.items())[:30]]


def examples(page: Page) -> list[list[str]]:
    (rows,) = [rows for caption, rows in page.tables.items() if "example predictions" in caption]
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with markup and with Hebrew."""
    return Path(write_corpus(tmp_path_factory.mktemp("data"), TEXTS, max_characters=50, vocabulary=400))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    mapping = {**RECIPE, "objective": {"name": "canine_s"}}
    mapping["train"] = {**RECIPE["train"], "steps": 1, "validate_every_steps": 1}
    recipe = build(PretrainRecipe, mapping, source="test")
    return Path(pretrain(recipe, str(data), str(tmp_path_factory.mktemp("runs") / "tiny")).run)


def written(*folders: Path, output: Path) -> tuple[str, Page]:
    text = write_report([str(folder) for folder in folders], str(output / "report.html")).read_text(encoding="utf-8")
    return text, Page(text)


def test_a_run_shows_its_context_and_predictions(run: Path, data: Path, tmp_path: Path) -> None:
    text, page = written(run, output=tmp_path)
    found = evaluate(str(run), str(data))
    value, note = page.cards[USES]
    assert value == ("Yes" if found["margin_low"] > 0 else "Not yet")
    assert f"(95% interval {found['margin_low']:.2f} to {found['margin_high']:.2f})" in note
    assert page.cards[PROBE][0] == f"{found['probe']:.2f} nats"
    header, *rows = examples(page)
    assert header == ["text", "hidden", "first", "second", "third"]
    assert 0 < len(rows) <= 5
    for around, hidden, *guesses in rows:
        before, after = around.split("█")
        whole = (before.strip("…") + hidden + after.strip("…")).replace("⏎ ", "\n")
        assert any(whole in document for _, document in TEXTS)
        right = [guess for guess in guesses if guess.startswith("✓")]
        assert [guess.split()[1] for guess in right] == [hidden] * len(right)
        assert all(guess.endswith("%") or guess == "–" for guess in guesses)
    first = sum(row[2].startswith("✓") for row in rows)
    assert f"Step 1: {first} of {len(rows)} example predictions right at first (✓)" in page.text
    assert "<some>" not in text
    assert text.count('<span class="sample" dir="auto">') == len(rows)
    assert written(run, output=tmp_path)[0] == text


def test_what_is_known_is_not_measured_again(run: Path, tmp_path: Path) -> None:
    known = {"margin": 7.0, "margin_low": 6.0, "margin_high": 8.0, "probe": 9.0}
    sentences = [("this is a [MASK:4] of", "text"), ("Its [MASK:5] end.", "lines")]
    path = write_report([str(run)], str(tmp_path / "page.html"), contexts={str(run): known}, sentences=sentences)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.cards[PROBE][0] == "9.00 nats"
    assert [row[:2] for row in examples(page)[1:]] == [["this is a █ of", "text"], ["Its █ end.", "lines"]]


def test_data_that_are_elsewhere(run: Path, data: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    config = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump({**config, "data": "/nowhere/else"}))
    _, page = written(moved, output=tmp_path)
    line = "No predictions: its data are not in /nowhere/else. Give their directory to tokenfree report too."
    assert line in page.text
    assert "no interval without its data" in page.text
    assert examples(written(moved, data, output=tmp_path)[1])


def test_a_model_that_cannot_be_asked_says_why(run: Path, data: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "broken")
    (file,) = broken.glob("checkpoints/step_*/model.safetensors")
    file.write_bytes(b"damaged" + file.read_bytes()[7:])
    with pytest.raises(JobError, match=r"is damaged: model\.safetensors does not match its hash"):
        written(broken, output=tmp_path)
    bare = make_run(tmp_path / "bare")
    assert "redictions" not in written(bare, output=tmp_path)[1].text
    torn = shutil.copytree(data, tmp_path / "torn")
    shutil.rmtree(torn / "validation")
    assert "No predictions: " in written(run, torn, output=tmp_path)[1].text


def test_the_best_trial_of_a_sweep_is_asked(run: Path, data: Path, tmp_path: Path) -> None:
    trials = [make_trial(number, 10, loss) for number, loss in enumerate((5.0, 4.0, 6.0))]
    sweep = make_sweep(tmp_path / "hyperparameters", trials)
    for number in range(3):
        shutil.copytree(run / "checkpoints", sweep / "trials" / f"trial_{number:03d}" / "checkpoints")
    config = yaml.safe_load((run / "config.yaml").read_text())
    (sweep / "best.yaml").write_text(yaml.safe_dump(config["recipe"]))
    settings = yaml.safe_load((sweep / "sweep.yaml").read_text())
    fingerprints = {"sweep": "00", "data": config["manifest"]}
    (sweep / "sweep.yaml").write_text(yaml.safe_dump({**settings, "fingerprints": fingerprints}))
    _, page = written(sweep, output=tmp_path)
    assert "a sweep records no place of its data. Give their directory" in page.text
    _, page = written(sweep, data, output=tmp_path)
    assert "Predictions of the best trial" in page.headings
    assert examples(page)
