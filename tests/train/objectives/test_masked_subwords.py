"""BERT's masking over the data's subword ids."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.masked_subwords import Config

PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *(f"▁w{i}" for i in range(200)),
]
V, LENGTH = len(PIECES), 64


class FakeVocabulary:
    size = V

    @property
    def pieces(self) -> list[str]:
        return PIECES


VOCABULARY: Any = FakeVocabulary()


def collate(windows: list[np.ndarray], ids: list[int] | None = None, **config: Any) -> Arrays:
    rows = {
        "subword_ids": windows,
        "subword_starts": [3 * np.arange(len(window), dtype=np.uint16) for window in windows],
        "subword_ends": [3 * np.arange(len(window), dtype=np.uint16) + 2 for window in windows],
    }
    collator = Config(**config).collator(VOCABULARY, LENGTH, 0)
    return collator(rows, np.arange(len(windows)) if ids is None else np.array(ids))


def window(number: int, size: int) -> np.ndarray:
    ids = np.random.default_rng(number).integers(259, V, size).astype(np.int32)
    ids[3::10] = 5  # a byte piece
    return ids


WINDOWS = [window(number, 40) for number in range(500)]


def test_framed_masked_and_scored_as_bert_does() -> None:
    batch = collate(WINDOWS)
    outcomes = {"masked": 0, "replaced": 0, "kept": 0}
    for row, gold in enumerate(WINDOWS):
        line, real = batch["codepoints"][row], batch["target_mask"][row]
        assert (line[0], line[41]) == (V, V + 1)
        assert batch["mask"][row].tolist() == [True] * 42 + [False] * 22
        assert real.sum() == round(0.15 * 36)
        positions = batch["target_positions"][row][real]
        assert (batch["target_ids"][row][real] == gold[positions - 1]).all()
        assert (gold[positions - 1] >= 259).all()
        others = np.setdiff1d(np.arange(40), positions - 1)
        assert (line[others + 1] == gold[others]).all()
        for now, was in zip(line[positions], gold[positions - 1], strict=True):
            outcomes["masked" if now == V + 2 else "kept" if now == was else "replaced"] += 1
            assert now == V + 2 or 259 <= now < V
    total = sum(outcomes.values())
    assert outcomes["masked"] / total == pytest.approx(0.8, abs=0.02)
    assert outcomes["replaced"] / total == pytest.approx(0.1, abs=0.02)
    assert (batch["num_characters"] == 3 * 39 + 2).all()


def test_long_windows_are_cropped_anywhere() -> None:
    long = np.arange(259, 459, dtype=np.int32)
    batch = collate([long] * 300, mask_fraction=0.01)
    assert batch["mask"].all()
    first = batch["codepoints"][:, 1]
    starts = first[first < V] - 259
    assert starts.min() < 10
    assert starts.max() > 200 - 62 - 10
    seen = batch["target_ids"][:, 0] - batch["target_positions"][:, 0]  # where the run began
    assert len(np.unique(seen)) > 80
    some = collate([long] * 2, ids=[5, 9], mask_fraction=0.01)
    for name, array in batch.items():
        np.testing.assert_array_equal(some[name], array[[5, 9]])


def test_nothing_to_predict() -> None:
    batch = collate([np.zeros(0, np.int32), np.array([5], np.int32)])
    assert not batch["target_mask"].any()
    assert batch["num_characters"].tolist() == [0, 2]


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match=r"masked_subwords .* no vocabulary"):
        Config().collator(None, LENGTH, 0)
    (mistake,) = Config().check(ModelConfig(), VOCABULARY)
    assert mistake.startswith("model.embedder.name: codepoint_hash reads characters")

    def sized(size: int, **model: Any) -> ModelConfig:
        table: Any = SimpleNamespace(name="subword_table", symbols="subwords", size=size)
        return dataclasses.replace(ModelConfig(), embedder=table, **model)

    (mistake,) = Config().check(sized(V + 2), VOCABULARY)
    assert mistake.startswith(f"model.embedder.size: {V + 2} rows")
    assert mistake.endswith(f"set it to {V + 3}")
    assert Config().check(sized(V + 3), VOCABULARY) == []
    narrow, wide = (sized(V + 3, character_width=width) for width in (384, 1000))
    for model, width in ((narrow, 384), (wide, 1000)):
        (mistake,) = Config(tied=True).check(model, VOCABULARY)
        assert mistake.startswith(
            f"objective.tied: the embedder's table is {width} wide and model.width is 768"
        )
    assert Config().check(narrow, VOCABULARY) == Config(tied=True).check(sized(V + 3), VOCABULARY) == []


PLAIN: dict[str, Any] = {
    "width": 8,
    "embedder": {"name": "subword_table", "size": V + 5, "max_characters": LENGTH},
    "downsampler": "identity",
    "trunk": {"layers": 1, "heads": 2, "dropout": 0.0},
    "upsampler": "identity",
}


def test_a_tied_output_layer_is_the_embedders_table() -> None:
    """Its rows for the subwords and CLS, SEP, MASK; a bias of its own; one gradient for both uses."""
    torch.manual_seed(0)
    encoder = build(ModelConfig, PLAIN, source="test").build()
    head = Config(tied=True).build(8, V)
    table = encoder.embedder.table.rows.weight
    names = {name for name, _ in head.named_parameters()}
    assert names == {"dense.weight", "dense.bias", "norm.weight", "norm.bias", "output_bias"}
    assert head.output_bias is not None
    torch.nn.init.normal_(head.output_bias)
    h_ND = torch.randn(5, 8)
    transformed = head.norm(torch.nn.functional.gelu(head.dense(h_ND), approximate="tanh"))
    torch.testing.assert_close(head.logits(encoder, h_ND), transformed @ table[: V + 3].T + head.output_bias)

    batch = {name: torch.from_numpy(array) for name, array in collate(WINDOWS[:2]).items()}
    loss = head(encoder, batch)
    loss.total.backward()
    gradient = table.grad
    assert gradient is not None
    unseen = torch.ones(V, dtype=torch.bool)
    unseen[batch["codepoints"][batch["codepoints"] < V]] = False
    unseen[batch["target_ids"]] = False
    assert (gradient[:V][unseen].abs().sum(dim=1) > 0).all()  # as classes
    assert (gradient[V + 3 :] == 0).all()  # rows of no symbol
    apart = Config().build(8, V + 3)
    own = {"output.weight": table[: V + 3].detach(), "output.bias": head.output_bias.detach()}
    apart.load_state_dict(
        {name: value for name, value in {**head.state_dict(), **own}.items() if name != "output_bias"}
    )
    table.grad = None
    other = apart(encoder, batch)
    assert other.total.item() == pytest.approx(loss.total.item(), rel=1e-6)
    other.total.backward()
    own_gradient = apart.get_parameter("output.weight").grad
    assert own_gradient is not None
    assert table.grad is not None
    table.grad[: V + 3] += own_gradient
    torch.testing.assert_close(table.grad, gradient)


def test_the_shortest_input() -> None:
    """CLS, one subword, SEP."""
    collator = Config().collator(VOCABULARY, 3, 0)
    rows = {
        "subword_ids": [np.array([260, 261])],
        "subword_starts": [np.array([0, 1])],
        "subword_ends": [np.array([1, 2])],
    }
    assert collator(rows, np.array([0]))["target_mask"].sum() == 1
    with pytest.raises(UserError, match=r"train\.length: 2 leaves no subword; make it at least 3"):
        Config().collator(VOCABULARY, 2, 0)
