"""What the page shows of a real model: whether it uses its context, and predictions of hidden words."""

import pydoc_data.topics as topics
import shutil
from pathlib import Path

import pytest
import yaml

from tests.train.conftest import RECIPE, write_corpus
from tests.workflows.report.test_page import PROBE, USES, Page, make_run
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
    text = write_report([str(folder) for folder in folders], str(output / "report.html")).read_text(
        encoding="utf-8"
    )
    return text, Page(text)


def test_a_run_shows_its_context_and_predictions(run: Path, data: Path, tmp_path: Path) -> None:
    text, page = written(run, output=tmp_path)
    found = evaluate(str(run), str(data))
    value, note = page.cards[USES]
    assert value == ("Yes" if found["margin_low"] > 0 else "Not yet")
    low, high = sorted(abs(found[name]) for name in ("margin_low", "margin_high"))
    assert f"(95% interval {low:.2f} to {high:.2f})" in note
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


def test_data_that_are_elsewhere(run: Path, data: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    config = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump({**config, "data": "/nowhere/else"}))
    (moved / "hashes.json").unlink()
    _, page = written(moved, output=tmp_path)
    line = "No predictions: its data are not in /nowhere/else. Give their directory to tokenfree report too."
    assert line in page.text
    assert "No interval without its data." in page.text
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
