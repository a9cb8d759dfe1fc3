"""The card of an exported folder: front matter that the hub reads, and what the run says of itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run, import_folder
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]


def test_the_card_tells_the_training_and_how_to_load(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    result = pretrain(make_recipe(steps=2), corpus, str(tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    front: Any = card.data
    assert (front.library_name, front.pipeline_tag) == ("transformers", "feature-extraction")
    assert "trust_remote_code=True" in card.text
    assert (tmp_path / "out" / "tokenization_tokenfree.py").is_file()
    assert "| steps | 2 |" in card.text
    assert f"| validation loss | {result.validation_loss:.4f} |" in card.text
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
