"""What the recipes of tasks teach from scratch, and that those of base size take files of their form."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.settings import build, merge
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.tasks.base import Split
from tokenfree.train.tasks.examples.texts import GLUE
from tokenfree.workflows.recipes import library

SPLITS: tuple[Split, ...] = ("train", "dev")
SMALL: dict[str, Any] = {
    "model": {"width": 8, "embedder": {"buckets": 16, "hashes": 2}, "trunk": {"layers": 1, "heads": 2}},
    "train": {"steps": 1, "length": 512, "validate_every_steps": 1, "threads": 1, "precision": "float32"},
}
OWN: dict[str, str] = {  # files of the forms that the recipes read
    "xnli-base": "language\tpremise\thypothesis\tlabel\n"
    "en\tIt rains.\tIt is wet.\tentailment\nen\tIt rains.\tIt is dry.\tcontradiction\n"
    "en\tIt rains.\tIt is late.\tneutral\n",
    "ner-base": "Ada B-PER\nLovelace I-PER\nwrote O\n\nLondon B-LOC\nsleeps O\n",
    "qa-squad-base": json.dumps(
        {
            "version": "1.1",
            "data": [
                {
                    "title": "Rain",
                    "paragraphs": [
                        {
                            "context": "Rain fell on Monday in Oslo.",
                            "qas": [
                                {
                                    "id": "1",
                                    "question": "Where did it rain?",
                                    "answers": [{"text": "Oslo", "answer_start": 23}],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ),
}
ENDS = {"qa-squad-base": "json", "ner-base": "txt"}
BASES = [name for name in library.names() if name.startswith("glue-") or name in OWN]


def glue_file(name: str) -> str:
    """Two examples of each class of a task of GLUE, or of numbers, with its columns."""
    task = GLUE[name]
    columns = [task.text, *([task.second] if task.second else []), "label"]
    labels = task.labels or ("0.0", "2.5", "5.0")
    rows = [[f"text {n} {column}" for column in columns[:-1]] + [label] for n in range(2) for label in labels]
    return "\n".join("\t".join(row) for row in [columns, *rows]) + "\n"


@pytest.mark.parametrize("name", BASES)
def test_recipes_of_base_size_take_files_of_their_form(name: str, tmp_path: Path) -> None:
    mapping = library.read_based(name)
    path = tmp_path / f"examples.{ENDS.get(name, 'tsv')}"
    path.write_text(OWN.get(name) or glue_file(mapping["task"]["glue"]), encoding="utf-8")
    recipe = build(FinetuneRecipe, merge(mapping, SMALL), source=name)
    assert (recipe.train.global_batch, recipe.train.learning_rate, recipe.train.warmup) == (32, 2e-5, 0.1)
    files: dict[Split, str] = {split: str(path) for split in SPLITS}
    assert finetune(recipe, files, str(tmp_path / "run")).dev


def test_the_recipes_of_glue_are_those_of_its_tasks() -> None:
    found = {name.split("-")[1] for name in BASES if name.startswith("glue-")}
    assert found == set(GLUE) - {"wnli", "ax"}  # which the papers leave out
    for name in found:
        assert library.read_based(f"glue-{name}-base")["task"]["glue"] == name


def test_classification_learns_which_words_matter_among_others(tmp_path: Path) -> None:
    draw = random.Random(0)
    # Made of the same syllables, so that single characters tell nothing; 5 words for each label among 100
    # others.
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
