"""The batches and steps of the benchmark for GPUs, which a machine without one can make."""

import argparse

import pytest
import torch

from benchmarks.train.gpu_step import make_batch, make_peer_step
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.model_with_head import pretraining_task
from tokenfree.workflows.recipes import library


def recipe_of(name: str, **objective: bool) -> PretrainRecipe:
    mapping = library.read_based(name)
    mapping["objective"] = {**mapping["objective"], **objective}
    return build(PretrainRecipe, mapping, source=name)


@pytest.mark.parametrize(("name", "more"), [("canine-s-tiny", {"next_sentence": True}), ("bert-tiny", {})])
def test_a_batch_has_what_the_model_reads(name: str, more: dict[str, bool]) -> None:
    recipe = recipe_of(name, **more)
    total, _ = pretraining_task(recipe, 500)(make_batch(recipe, 2, 500))
    total.backward()
    assert torch.isfinite(total)


def test_the_peer_trains_on_the_same_batch() -> None:
    options = argparse.Namespace(vocabulary=500, accumulate=1, compile=False)
    small = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    make_peer_step(make_batch(recipe_of("canine-s-tiny"), 2, 500), options, **small)()
