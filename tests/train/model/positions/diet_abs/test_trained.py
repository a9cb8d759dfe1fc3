"""What training makes of position codes, according to the DIET paper (arXiv 2104.08698, section 4 and figures 4 and 5).

Slow: each trains a small model for a minute or so.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.conftest import write_corpus
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop

LENGTH = 56


def loop_of(corpus: str, *, positions: Any, at_input: str, steps: int) -> Loop:
    """A BERT over characters, which masks and predicts single ones."""
    model = {
        "width": 32,
        "embedder": {"buckets": 512, "hashes": 4, "max_characters": 64, "positions": at_input, "segments": 0},
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"layers": 2, "heads": 4, "inner_width": 64, "dropout": 0.0, "positions": positions},
    }
    train = {"steps": steps, "global_batch": 32, "length": LENGTH, "learning_rate": 0.003, "warmup": 0.05,
             "streams": 2, "threads": 1, "validation_windows": 8}  # fmt: skip
    objective = {"name": "masked_characters", "buckets": 512}
    return Loop(
        build(PretrainRecipe, {"model": model, "objective": objective, "train": train}, source="test"), corpus
    )


def shift(loop: Loop) -> float:
    """How far the bias of a pair is from that of the next along the diagonal, in standard deviations; CLS apart."""
    valid = torch.ones(1, LENGTH, dtype=torch.bool)
    with torch.no_grad():
        bias: Tensor = loop.encoder.trunk.positions(torch.zeros(1, LENGTH, 32), valid)[0].dense(slice(None))
    inner = bias[:, 1:48, 1:48]
    return ((inner[:, 1:, 1:] - inner[:, :-1, :-1]).abs().mean() / inner.std()).item()


@pytest.mark.slow
def test_absolute_codes_learn_to_shift(corpus: str) -> None:
    """Behaviour 3: DIET-ABS can be any matrix, and becomes nearly one of offsets; at first it is none at all."""
    loop = loop_of(
        corpus, positions={"name": "diet_abs", "rank": 16, "max_units": 64}, at_input="none", steps=400
    )
    assert shift(loop) == pytest.approx(1.13, abs=0.05)  # of independent entries: 2 / sqrt(pi)
    list(loop.steps(400))
    assert shift(loop) < 0.7


LETTERS = "acfhjlnprtvyzbdk"


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Texts in which a letter mostly follows from the one before it: a mask is guessed by who knows its neighbours."""
    generator = random.Random(0)

    def walk() -> str:
        at, letters = 0, []
        for _ in range(2000):
            at = (at + 1) % 16 if generator.random() < 0.85 else generator.randrange(16)
            letters.append(LETTERS[at])
        return "".join(letters)

    texts = [(f"walk{number}", walk()) for number in range(60)]
    return write_corpus(tmp_path_factory.mktemp("walks"), texts, max_characters=24, vocabulary=300)


def likeness(corpus: str, positions: Any) -> tuple[float, float]:
    """Of the vectors of one letter at two places, the mean cosine after training; and the loss at the end.

    In each there is an input position as well. What no longer helps decays, as it does in the paper's 500,000
    steps; so that 400 do, the weight decay is a hundred times as strong.
    """
    model = {
        "width": 32,
        "embedder": {
            "buckets": 512,
            "hashes": 4,
            "max_characters": 32,
            "positions": "learned",
            "segments": 0,
        },
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"layers": 1, "heads": 4, "inner_width": 64, "dropout": 0.0, "positions": positions},
    }
    train = {"steps": 400, "global_batch": 64, "length": 32, "learning_rate": 0.01, "warmup": 0.05, "streams": 2,
             "threads": 1, "validation_windows": 8, "optimizer": {"name": "adamw", "weight_decay": 1.0}}  # fmt: skip
    objective = {"name": "masked_characters", "buckets": 128}
    recipe = build(PretrainRecipe, {"model": model, "objective": objective, "train": train}, source="test")
    loop, lines = Loop(recipe, corpus), []
    lines.extend(loop.steps(400))
    letters = torch.tensor([[ord(letter)] * 24 for letter in LETTERS])
    with torch.no_grad():
        places = torch.arange(1, 25).expand(16, -1)
        vectors = torch.nn.functional.normalize(loop.encoder.embed_characters(letters, places), dim=-1)
    cosines = vectors @ vectors.transpose(1, 2)
    return cosines[:, ~torch.eye(24, dtype=torch.bool)].mean().item(), sum(
        line["loss"] for line in lines[-50:]
    ) / 50


@pytest.mark.slow
def test_positions_at_the_input_become_alike_where_the_trunk_has_its_own(walks: str) -> None:
    """Behaviour 8: with DIET-REL, a letter is nearly the same input wherever it stands; without, it must not be."""
    with_diet, its_loss = likeness(walks, {"name": "diet_rel", "max_units": 32})
    without, other_loss = likeness(walks, "none")
    assert with_diet > 0.9
    assert without < 0.6
    assert max(its_loss, other_loss) < 1.5  # of 16 letters a guess is 2.77; both know the neighbours
