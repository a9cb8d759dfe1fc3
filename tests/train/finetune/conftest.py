"""Small files of examples, and recipes that learn from them in seconds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import RECIPE, SUBWORDS, WORDS
from tokenfree.core.settings import build, merge
from tokenfree.train.config import FinetuneRecipe

MakeTask = Callable[..., FinetuneRecipe]

TRAIN: dict[str, Any] = {
    "steps": 8,
    "global_batch": 8,
    "length": 144,
    "learning_rate": 0.01,
    "checkpoint_every_steps": 3,
    "checkpoint_every_seconds": None,
    "validate_every_steps": 2,
    "threads": 1,
}
_LONG = {"embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 144}}
_PLAIN = {"downsampler": {"name": "identity"}, "upsampler": {"name": "identity"}}
MODELS: dict[str, Mapping[str, Any]] = {
    "canine": _LONG,
    "character_bert": {
        **_PLAIN, "embedder": {"name": "character_vocabulary", "size": 128, "max_characters": 144}
    },
    "multi_scale": {
        **_LONG,
        **_PLAIN,
        "trunk": {"layer": {"name": "multi_scale"}, "attention": {"name": "multi_scale", "scales": [1, 3, "N/4"]}},
    },
    "diet": {**_LONG, **_PLAIN, "trunk": {"positions": {"name": "diet_rel"}}},
    "longformer": {**_LONG, "trunk": {"attention": {"name": "sliding_global"}}},
    "words": WORDS,
    "subwords": SUBWORDS,
}  # fmt: skip


def task_recipe(task: str | Mapping[str, Any], model: str = "canine", **train: Any) -> FinetuneRecipe:
    """A recipe for a task, given by its name or mapping: eight steps of a model of width 16, with dropout.

    `model` is one of `MODELS`; other keywords are keys of `train`.
    """
    over = {"model": MODELS[model], "task": task, "train": {**TRAIN, **train}}
    return build(FinetuneRecipe, merge({"model": RECIPE["model"]}, over), source="test")


def write_files(folder: Path) -> dict[str, str]:
    """Training, development and test sets of texts (`train`), pairs (`pairs_train`) and tagged words (`tags_train`)."""
    found = dict[str, str]()
    for part, split in enumerate(("train", "dev", "test")):
        numbers = range(part * 100, part * 100 + (40 if split == "train" else 12))
        found |= {
            split: write(
                folder / f"{split}.tsv",
                "text\tlabel",
                [f"{_word(n)} day no. {n}\t{_sign(n)}" for n in numbers],
            ),
            f"pairs_{split}": write(
                folder / f"pairs_{split}.tsv",
                "sentence1\tsentence2\tlabel",
                [f"day {n}\t{_word(n)} day\t{_sign(n)}" for n in numbers],
            ),
            f"tags_{split}": write(folder / f"tags_{split}.txt", "", [_sentence(n) for n in numbers]),
        }
    return found


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    return task_recipe


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_files(tmp_path_factory.mktemp("files"))


def write(path: Path, header: str, lines: list[str]) -> str:
    """The path of a file with these lines."""
    path.write_text("".join(f"{line}\n" for line in ([header] if header else []) + lines), encoding="utf-8")
    return str(path)


def splits(files: Mapping[str, str], prefix: str = "") -> dict[Any, str]:
    """The files of one task by split."""
    return {split: files[prefix + split] for split in ("train", "dev", "test")}


def _word(number: int) -> str:
    return "good" if number % 3 else "bad"


def _sign(number: int) -> str:
    return "plus" if number % 3 else "minus"


def _sentence(number: int) -> str:
    name = "Ana Ruiz" if number % 2 else "Bo"
    first, *rest = name.split()
    names = [f"{first} B-PER", *(f"{word} I-PER" for word in rest)]
    return "\n".join([*names, "saw O", f"{number} O", "Rome B-LOC", ". O", ""])
