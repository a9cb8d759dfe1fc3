"""What the recipes of tasks teach from scratch."""

import random
from pathlib import Path

from tokenfree.preprocess.common.settings import build, merge
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.tasks.base import Split
from tokenfree.workflows.recipes import library

SPLITS: tuple[Split, ...] = ("train", "dev")


def test_classification_learns_which_words_matter_among_others(tmp_path: Path) -> None:
    draw = random.Random(0)
    # Made of the same syllables, so that single characters tell nothing; 5 words for each label among 100 others.
    words = ["".join(draw.choices(["ka", "lo", "mi", "ru", "te", "sa", "no", "vi"], k=3)) for _ in range(110)]
    others, signs = words[10:], (words[:5], words[5:10])
    for split, count in zip(SPLITS, (512, 128), strict=True):
        with open(tmp_path / f"{split}.tsv", "w", encoding="utf-8") as file:
            file.write("label\ttext\n")
            for number in range(count):
                text = [*draw.choices(others, k=6), draw.choice(signs[number % 2])]
                draw.shuffle(text)
                file.write(f"{number % 2}\t{' '.join(text)}\n")
    few = {
        "model": {"trunk": {"layers": 1}},
        "train": {"steps": 60, "learning_rate": 0.001, "validate_every_steps": 60, "threads": 1},
    }
    recipe = build(FinetuneRecipe, merge(library.read_based("classification"), few), source="classification")
    files: dict[Split, str] = {split: str(tmp_path / f"{split}.tsv") for split in SPLITS}
    assert finetune(recipe, files, str(tmp_path / "run")).dev["accuracy"] > 0.75
