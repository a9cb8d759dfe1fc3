"""Makes the folders that stand for a format: tiny data, a run on them, that run fine-tuned, a sweep of two trials.

What a released tokenfree wrote is never made again: later versions have to open it (`test_formats.py`). A new
number is due when a release writes what the one before could not read (`SCHEMA_VERSION`, `RUN_FORMAT`,
`SWEEP_FORMAT`):

    python -m tests.formats.make /tmp/formats && cp -r /tmp/formats tests/formats/2
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from tests.pipelines.conftest import quick_config, write_corpus
from tokenfree.core.settings import build
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import WindowConfig
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray.cluster import ray_session
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.train.tasks.base import Split

RECIPE: dict[str, Any] = {
    "model": {
        "width": 2,
        "embedder": {"name": "codepoint_hash", "buckets": 8, "hashes": 2, "max_characters": 64},
        "trunk": {"layers": 1, "heads": 1, "inner_width": 2},
    },
    "train": {
        "steps": 4,
        "global_batch": 4,
        "length": 64,
        "streams": 2,
        "keep_checkpoints": 1,
        "validate_every_steps": 2,
        "validation_windows": 4,
        "threads": 1,
    },
}
SWEEP: dict[str, Any] = {
    "base": RECIPE,
    "space": {"train.learning_rate": {"choice": [0.001, 0.01]}},
    "trials": 2,
    "budget": {"steps": 2},
    "reports": 1,
}
TASK: dict[str, Any] = {
    "model": RECIPE["model"],
    "task": "classification",
    "train": {
        "steps": 2,
        "global_batch": 4,
        "length": 64,
        "learning_rate": 0.3,
        "validate_every_steps": 2,
        "threads": 1,
    },
}
EXAMPLES = "text\tlabel\nrain falls\twet\nthe sun is out\tdry\nsnow falls\twet\na warm wind\tdry\n"


def make(folder: Path) -> None:
    """Make `data`, `run`, `finetuned` with its `examples.tsv`, and `sweep` in a new folder."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as books:
        corpus = Path(books) / "books.jsonl"
        write_corpus(corpus, num_documents=8)
        settings = quick_config(corpus, window=WindowConfig(max_characters=60), shard_characters=3_000)
        run_preprocess(settings, str(folder / "data"))
    data = str(folder / "data")
    pretrain(build(PretrainRecipe, RECIPE, source="make"), data, str(folder / "run"))
    make_finetuned(folder)
    with ray_session(2):
        run_sweep(build(SweepRecipe, SWEEP, source="make"), data, str(folder / "sweep"))
    remove_locks(folder)


def make_finetuned(folder: Path) -> None:
    """Make `finetuned` and its `examples.tsv` beside `run`."""
    examples = folder / "examples.tsv"
    examples.write_text(EXAMPLES)
    files: dict[Split, str] = {"train": str(examples), "dev": str(examples)}
    recipe = build(FinetuneRecipe, TASK, source="make")
    finetune(recipe, files, str(folder / "finetuned"), init_from=str(folder / "run"))


def remove_locks(folder: Path) -> None:
    """Remove what only a running command needs."""
    for path in folder.rglob("lock*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    with (  # what is kept tells nothing of a machine
        mock.patch("socket.gethostname", return_value="localhost"),
        mock.patch("platform.platform", return_value="Linux"),
        mock.patch("tokenfree.train.runs.provenance.commit", return_value=None),
    ):
        make(Path(sys.argv[1]).absolute())
