"""The card of an exported folder: front matter that the hub reads, and what the run says of itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from tests.train.finetune.conftest import splits, task_recipe, write_files
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.folders import export_run, import_folder
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]


def test_the_card_tells_the_training_and_how_to_load(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    result = pretrain(make_recipe(steps=2), corpus, str(tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    front: Any = card.data
    assert (front.library_name, front.pipeline_tag) == ("transformers", "feature-extraction")
    assert "trust_remote_code=True" in card.text
    assert (tmp_path / "out" / "tokenization_tokenfree.py").is_file()
    assert "| steps | 2 |" in card.text
    assert f"| validation loss, step 2 | {result.validation_loss:.4f} |" in card.text
    assert result.baselines
    assert f"| baseline without context: unigram | {result.baselines['unigram']:.4f} |" in card.text
    assert str(tmp_path) not in card.text
    assert 'pass `padding="max_length"` and `max_length=' in card.text


def test_an_imported_run_claims_no_training(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(steps=1), corpus, str(tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "out")
    import_folder(tmp_path / "out", tmp_path / "again")
    export_run(tmp_path / "again", tmp_path / "more")
    text = ModelCard.load(tmp_path / "more" / "README.md").text
    assert "| weights | imported, not trained by tokenfree |" in text
    assert "loss" not in text
    assert json.loads((tmp_path / "more" / "tokenizer_config.json").read_text())["pad_block"] == 128


def rows(folder: Path) -> dict[str, str]:
    """Return the facts of a card by name."""
    lines = ModelCard.load(folder / "README.md").text.splitlines()
    cells = (line.strip("| ").split(" | ") for line in lines if line.startswith("| "))
    return {row[0]: row[1] for row in cells if len(row) == 2}


def test_a_validation_is_of_the_exported_step_or_names_an_earlier_one(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    kept = {"checkpoint_every_steps": 3, "validate_every_steps": 2, "keep_checkpoints": 9}
    pretrain(make_recipe(steps=6, **kept), corpus, str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: f"{line['validation_loss']:.4f}" for line in lines if "validation_loss" in line}
    assert set(losses) == {2, 4, 6}
    for step, validated in ((6, 6), (3, 2)):
        export_run(tmp_path / "run", tmp_path / str(step), step=step)
        found = rows(tmp_path / str(step))
        assert found["steps"] == str(step)
        assert {name: value for name, value in found.items() if "validation" in name} == {
            f"validation loss, step {validated}": losses[validated]
        }


def test_scores_are_of_the_exported_step_and_have_their_baseline(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    run, files = str(tmp_path / "run"), splits(write_files(tmp_path / "files"))
    result = finetune(task_recipe("classification", keep_checkpoints=9), files, run)
    other = next(step for step in (3, 6) if step != result.best_step)
    export_run(run, tmp_path / "best")
    export_run(run, tmp_path / "other", step=other)
    found = rows(tmp_path / "best")
    assert found[f"test: accuracy, step {result.best_step}"] == f"{result.test['accuracy']:.4f}"
    assert found["test: baseline, larger class"] == "0.6667"
    assert not [name for name in rows(tmp_path / "other") if name.startswith(("dev", "test"))]
