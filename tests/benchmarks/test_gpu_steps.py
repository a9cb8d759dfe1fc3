"""The batches of the benchmark for GPUs, which a machine without one can make."""

import pytest
import torch

from benchmarks.train.gpu_step import make_batch
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.step import pretraining_task
from tokenfree.workflows.recipes import library


@pytest.mark.parametrize(("recipe", "more"), [("canine-s-tiny", {"next_sentence": True}), ("bert-tiny", {})])
def test_a_batch_has_what_the_model_reads(recipe: str, more: dict[str, bool]) -> None:
    mapping = library.read_based(recipe)
    mapping["objective"] = {**mapping["objective"], **more}
    built = build(PretrainRecipe, mapping, source=recipe)
    total, _ = pretraining_task(built, 500)(make_batch(built, 2, 500))
    total.backward()
    assert torch.isfinite(total)
