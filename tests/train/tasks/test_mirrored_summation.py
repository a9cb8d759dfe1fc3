"""Mirrored summation: its sequences, its sums and its four models (arXiv 1912.00544, the synthetic task)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.train.checks import check_finetuning
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.tasks.base import Item
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.train.tasks.mirrored_summation import Config, MirroredExample, SequenceCollator, SumHead
from tokenfree.workflows.recipes import library

HIER_S, DEEP_HIER_S = "mirrored-summation-hier-s", "mirrored-summation-deep-hier-s"
FLEX, TRANSFORMER = "mirrored-summation", "mirrored-summation-transformer"
MODELS = [HIER_S, DEEP_HIER_S, FLEX, TRANSFORMER]
TINY: dict[str, Any] = {
    "model": {"width": 20, "embedder": {"size": 2}},
    "task": {
        "length": 8,
        "size": 2,
        "pairs": 2,
        "train_examples": 2000,
        "dev_examples": 20,
        "test_examples": 30,
    },
    "train": {"steps": 6, "global_batch": 8, "length": 9, "validate_every_steps": 3, "threads": 1},
}


def recipe_of(name: str, over: Mapping[str, Any] = TINY) -> FinetuneRecipe:
    return build(FinetuneRecipe, merge(library.read_based(name), over), source=name)


def drawn(task: Config, split: Any, *numbers: int) -> np.ndarray:
    return task.sequences([MirroredExample(split, number) for number in numbers])


def test_sums_by_hand() -> None:
    sequence = np.array([[[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]]], dtype=np.float32)
    for pairs, wanted in ((1, [5, 500]), (2, [13, 1300]), (3, [22, 2200]), (4, [30, 3000]), (5, [35, 3500])):
        assert Config(length=5, size=2, pairs=pairs).targets(sequence).tolist() == [wanted]


def test_sequences_are_functions_of_seed_split_length_and_number() -> None:
    task = Config(length=6, size=3, pairs=2)
    x = drawn(task, "train", 0, 1, 5)
    assert x.shape == (3, 6, 3)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(drawn(task, "train", 5, 0), x[[2, 0]])
    np.testing.assert_array_equal(drawn(Config(length=6, size=3, pairs=3), "train", 0, 1, 5), x)
    assert len(np.unique(x)) == x.size
    for other in (
        drawn(task, "dev", 0),
        drawn(task, "test", 0),
        drawn(Config(length=6, size=3, seed=1), "train", 0),
        drawn(Config(length=7, size=3), "train", 0),
    ):
        assert not np.isin(other, x).any()


def test_numbers_are_uniform_and_independent() -> None:
    x = drawn(Config(length=4, size=3), "test", *range(20_000)).reshape(20_000, 12)
    assert 0 <= x.min() < x.max() <= 1
    for power in (1, 2, 3, 4):
        np.testing.assert_allclose((x.astype(np.float64) ** power).mean(axis=0), 1 / (power + 1), atol=0.01)
    np.testing.assert_allclose(np.corrcoef(x.T), np.eye(12), atol=0.04)


@pytest.mark.parametrize(
    ("length", "pairs"), [(6, 1), (6, 3), (6, 5), (6, 6), (7, 3), (7, 4), (7, 6), (7, 7)]
)
def test_error_of_the_best_constant(length: int, pairs: int) -> None:
    """Pairs past the middle come again, and the vector in the middle meets itself."""
    task = Config(length=length, size=2, pairs=pairs)
    sums = task.targets(drawn(task, "train", *range(40_000)))
    assert sums.mean() == pytest.approx(task.mean, rel=0.01)
    assert sums.var() == pytest.approx(task.variance, rel=0.03)
    if 2 * pairs <= length:
        assert (task.mean, task.variance) == (pairs / 4, pytest.approx(7 * pairs / 144))


def test_arrays_of_a_batch() -> None:
    task = Config(length=5, size=2, pairs=2, train_examples=9)
    examples = task.examples("train", None)
    collator = SequenceCollator(task)
    items = collator.items(examples, training=True)
    assert [item.size for item in items] == [6] * 9
    arrays = collator([items[7], items[2]], np.arange(2))
    x = drawn(task, "train", 7, 2)
    np.testing.assert_array_equal(arrays["vectors"][:, 1:], x)
    assert not arrays["vectors"][:, 0].any()
    np.testing.assert_allclose(arrays["sums"], x[:, 0] * x[:, 4] + x[:, 1] * x[:, 3], rtol=1e-6)
    assert arrays["mask"].shape == arrays["codepoints"].shape == (2, 6)
    assert arrays["mask"].all()
    assert arrays["num_characters"].tolist() == [5, 5]


def test_splits_have_their_sizes() -> None:
    task = Config()
    assert [len(task.examples(split, None)) for split in ("train", "test")] == [200_000, 200_000]
    assert task.examples("dev", None)[3] == MirroredExample("dev", 3)
    with pytest.raises(
        UserError, match=r"^some\.csv: task\.name: mirrored_summation makes its examples itself"
    ):
        task.examples("train", "some.csv")
    with pytest.raises(UserError, match=r"^text 1: .* reads vectors, not texts"):
        task.raw("text 1", "a text")


@pytest.mark.parametrize(("name", "layers"), [(HIER_S, 2), (DEEP_HIER_S, 6), (FLEX, 2), (TRANSFORMER, 2)])
def test_the_models_have_the_sizes_of_the_paper(name: str, layers: int) -> None:
    """Layers of 4 D N'D' weights, their biases and a LayerNorm: no FFN, which only the Transformer has."""
    recipe = recipe_of(name, {})
    task, width = recipe.task, recipe.model.width
    assert (task.length, task.size, task.train_examples, task.test_examples) == (100, 50, 200_000, 200_000)
    assert (recipe.model.trunk.heads, recipe.train.length) == (10, 101)
    assert check_finetuning(recipe) == []
    encoder = recipe.model.build()
    a_layer = 4 * width**2 + 4 * width + 2 * width
    if name == TRANSFORMER:
        a_layer += 2 * 4 * width**2 + 4 * width + width + 2 * width
    assert sum(parameter.numel() for parameter in encoder.trunk.parameters()) == layers * a_layer
    assert sum(parameter.numel() for parameter in encoder.embedder.parameters()) == 50 * width + 2 * width
    groups = [getattr(layer.core, "groups", None) for layer in encoder.trunk.layers]  # pyright: ignore
    scales = {
        HIER_S: [(3, 10)],
        DEEP_HIER_S: [(3, 10)],
        FLEX: [(3, 2), ("N/16", 2), ("N/8", 2), ("N/4", 2), ("N/2", 2)],
        TRANSFORMER: None,
    }
    assert groups == [scales[name]] * layers


def batch_of(task: Config, *numbers: int) -> dict[str, torch.Tensor]:
    collator = SequenceCollator(task)
    items = [Item(number, 1 + task.length, MirroredExample("train", number)) for number in numbers]
    return {name: torch.from_numpy(values) for name, values in collator(items, np.array(numbers)).items()}


def head_and_encoder(name: str) -> tuple[Config, SumHead, Encoder]:
    recipe = recipe_of(name)
    torch.manual_seed(0)
    return recipe.task, recipe.task.build(recipe.model).eval(), recipe.model.build().eval()


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_the_mean_squared_error(name: str) -> None:
    task, head, encoder = head_and_encoder(name)
    batch = batch_of(task, 0, 1, 2)
    outputs, loss = head.outputs(encoder, batch), head(encoder, batch)
    units = encoder(batch["vectors"], batch["mask"]).units
    found = head.classifier(torch.cat([units[:, 0], units.amax(dim=1)], dim=-1))
    wanted = (found - batch["sums"]).square().mean(dim=1)
    torch.testing.assert_close(outputs["squared_error"], wanted)
    torch.testing.assert_close(loss.total, wanted.sum())
    assert loss.num_targets == 3
    assert found.mean().item() == pytest.approx(task.mean, abs=0.1)  # it begins at the best constant


@pytest.mark.parametrize("name", MODELS)
def test_each_model_learns_more_than_the_mean(name: str) -> None:
    task, head, encoder = head_and_encoder(name)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=3e-3)
    for step in range(120 if name == TRANSFORMER else 50):
        loss = head(encoder, batch_of(task, *range(32 * step, 32 * step + 32)))
        optimizer.zero_grad()
        (loss.total / loss.num_targets).backward()
        optimizer.step()
    with torch.no_grad():
        batch = batch_of(task, *range(50_000, 50_500))
        error = head.outputs(encoder, batch)["squared_error"].mean().item()
    assert error < 0.85 * task.variance


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    found = finetune(recipe_of(FLEX), {}, str(tmp_path / "run"))
    assert set(found.dev) == set(found.test) == {"mse", "relative_mse"}
    assert found.test["relative_mse"] == pytest.approx(found.test["mse"] / (7 * 2 / 144))
    lines = [json.loads(line) for line in (tmp_path / "run/predictions/test.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [f"test {number}" for number in range(30)]
    assert np.mean([line["squared_error"] for line in lines]) == pytest.approx(found.test["mse"])
    assert finetune(recipe_of(FLEX), {}, str(tmp_path / "run")).already_complete
    model = load_finetuned(tmp_path / "run")
    metrics = model.evaluate(None).metrics
    assert metrics is not None
    assert metrics.values == pytest.approx(found.test, abs=1e-6)
    with pytest.raises(UserError, match="reads vectors, not texts"):
        model(["a text"])


@pytest.mark.parametrize(
    ("over", "problem"),
    [
        ({"task": {"pairs": 9}}, "task.pairs: 9 is more than task.length, 8; "),
        (
            {"train": {"length": 8}},
            "train.length: 8 positions are too few for 8 vectors and CLS; set it to 9",
        ),
        ({"task": {"size": 3}}, "model.embedder.size: 2 is not task.size, 3; "),
        (
            {"model": {"embedder": {"name": "byte_table", "size": None}}},
            "model.embedder.name: byte_table reads bytes",
        ),
        (
            {"model": {"downsampler": {"name": "strided_mean"}}},
            "model.downsampler.name: strided_mean makes units of ",
        ),
        (
            {"model": {"downsampler": {"name": "word_pooling"}}},
            "model.downsampler.name: word_pooling makes units of ",
        ),
    ],
)
def test_models_that_do_not_fit_are_refused(over: Mapping[str, Any], problem: str) -> None:
    mapping = merge(merge(library.read_based(FLEX), TINY), over)
    embedder = mapping["model"]["embedder"]
    mapping["model"]["embedder"] = {key: value for key, value in embedder.items() if value is not None}
    problems = check_finetuning(build(FinetuneRecipe, mapping, source="test"))
    assert any(each.startswith(problem) for each in problems), problems


@pytest.mark.parametrize("task", ["classification", "pairs", "tagging"])
def test_tasks_of_texts_refuse_a_model_of_vectors(task: str, tmp_path: Path) -> None:
    lines = {"classification": "text\tlabel\na\tx\nb\ty\n", "tagging": "a\tO\n\nb\tB-x\n\n"}
    lines["pairs"] = "sentence1\tsentence2\tlabel\na\tb\tx\nc\td\ty\n"
    file = tmp_path / ("train.txt" if task == "tagging" else "train.tsv")
    file.write_text(lines[task])
    mapping = {**library.read_based(FLEX), "task": {"name": task}}
    recipe = build(FinetuneRecipe, mapping, source="test")
    with pytest.raises(
        UserError, match=r"^model\.embedder\.name: vectors reads vectors, which texts have none of\. "
    ):
        finetune(recipe, {"train": str(file)}, str(tmp_path / "run"))
    with pytest.raises(UserError):
        text_inputs(recipe.model, 101, None).missing([])
