"""Commands that are watched, with inputs that take seconds."""

import pydoc_data.topics as topics
from pathlib import Path

import yaml

from tests.train.conftest import RECIPE, write_corpus


def tiny_pretraining(folder: Path) -> list[str]:
    """A command that trains eight steps; its output, the last argument, is `folder`/run."""
    texts = [(name, text[:2000]) for name, text in sorted(topics.topics.items())[:45]]
    (folder / "data").mkdir()
    data = write_corpus(folder / "data", texts, max_characters=48, vocabulary=400)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return ["pretrain", str(recipe), "--data", data, "--output", str(folder / "run")]
