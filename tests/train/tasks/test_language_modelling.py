"""Language modelling: every byte predicted once, from those before it, and what that comes to in bits."""

import json
import math
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
from tokenfree.train.loop.finetuning import Evaluator
from tokenfree.train.loop.step import ModelWithHead
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.inputs import ByteInputs, text_inputs
from tokenfree.workflows.recipes import library

TEXT = "Grüße, 世界! 🙂 " * 9  # 198 bytes
TINY: dict[str, Any] = {
    "model": {"width": 16, "trunk": {"layers": 1, "heads": 2}},
    "train": {"steps": 60, "global_batch": 8, "length": 48, "learning_rate": 0.02, "threads": 1},
}


def recipe_of(over: Mapping[str, Any] | None = None) -> FinetuneRecipe:
    return build(
        FinetuneRecipe,
        merge(merge(library.read_based("language-modelling"), TINY), over or {}),
        source="test",
    )


def model_of(recipe: FinetuneRecipe) -> ModelWithHead:
    torch.manual_seed(0)
    return ModelWithHead(recipe.model.build(), recipe.task.build(recipe.model)).eval()


def collator_of(recipe: FinetuneRecipe) -> Any:
    return recipe.task.collator(text_inputs(recipe.model, recipe.train.length, None), 0)


def test_bytes_of_a_text() -> None:
    found = ByteInputs(recipe_of().model, 48).encode("aé\x02世🙂")
    assert found.symbols.tolist() == [0x61, *"é".encode(), 1, *"世🙂".encode()]  # what stands for CLS is UNK
    assert found.vectors.tolist() == [0, 1, 3, 4, 7]


@pytest.mark.parametrize("stride", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", [1, 40, 41, 198])
def test_every_byte_is_predicted_once(size: int, training: bool, stride: float) -> None:
    recipe = recipe_of({"task": {"stride": stride}})
    text = TEXT.encode()[:size].decode("latin-1")  # of two bytes each past ASCII
    encoded = text.encode()
    collator = collator_of(recipe)
    items = collator.items([TextExample("a", text)], training=training)
    arrays = collator(items, np.arange(len(items)))
    found = [
        arrays["codepoints"][row, place + 1]
        for row, place in zip(*np.nonzero(arrays["target_mask"]), strict=True)
    ]  # fmt: skip
    assert bytes(found) == encoded
    assert arrays["num_characters"].sum() == len(encoded)
    if len(items) > 2 and not training:
        # Bytes that the first target of a later window has before it.
        before = arrays["target_mask"][1].argmax()
        assert before == 40 - int(40 * stride)


def test_bits_of_a_model_that_knows_nothing() -> None:
    """Each of 256 values alike: 8 bits a byte, whatever the windows."""
    recipe = recipe_of()
    model = model_of(recipe)
    head: Any = model.head
    torch.nn.init.zeros_(head.classifier.output.weight)
    examples = [TextExample("one", TEXT), TextExample("two", "x")]
    found = Evaluator(recipe.task, collator_of(recipe), examples)(model, torch.device("cpu"))
    assert [line["bytes"] for line in found.predictions] == [len(TEXT.encode()), 1]
    assert [line["bits_per_byte"] for line in found.predictions] == pytest.approx([8, 8])
    assert found.metrics is not None
    assert found.metrics.score == pytest.approx(8)
    assert found.loss == pytest.approx(math.log(256))


def test_bits_by_hand() -> None:
    """The sum of the logarithms of what a window gives to each byte, one after the other."""
    recipe = recipe_of()
    model, text = model_of(recipe), "abcab"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    head: Any = model.head
    total = 0.0
    for place, byte in enumerate(text.encode()):
        before = torch.tensor([[2, *text.encode()[:place]]])  # CLS, and what the model may have seen
        units = model.encoder.encode(before, torch.ones_like(before, dtype=torch.bool))[1]
        total -= head.classifier(units[0, -1]).log_softmax(dim=-1)[byte].item() / math.log(2)
    found = Evaluator(recipe.task, collator_of(recipe), [TextExample("a", text)])(model, torch.device("cpu"))
    assert found.predictions[0]["bits"] == pytest.approx(total, rel=1e-4)


def test_a_run_learns_what_comes_next(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("abcdefgh" * 60, encoding="utf-8")
    run = tmp_path / "run"
    found = finetune(recipe_of(), {"train": str(file), "dev": str(file), "test": str(file)}, str(run))
    assert found.test["bits_per_byte"] < 1
    (line,) = [json.loads(line) for line in (run / "predictions/test.jsonl").read_text().splitlines()]
    assert (line["key"], line["bytes"]) == ("text.txt", 480)
    known, other = load_finetuned(run)(["abcdefghabcdefgh", "hgfedcbahgfedcba"])
    assert known["bits_per_byte"] < other["bits_per_byte"]
    with pytest.raises(UserError, match=r"^text 1: there is no text"):
        load_finetuned(run)([""])


@pytest.mark.parametrize(
    ("over", "problem"),
    [
        (
            {"embedder": {"name": "codepoint_hash"}},
            "model.embedder.name: codepoint_hash reads characters, and ",
        ),
        (
            {"trunk": {"attention": {"name": "full"}}},
            "model.trunk.attention.name: full lets units see the bytes ",
        ),
        (
            {"downsampler": {"name": "strided_mean"}},
            "model.downsampler.name: strided_mean lets a unit see bytes ",
        ),
    ],
)
def test_models_that_see_what_comes_are_refused(over: Mapping[str, Any], problem: str) -> None:
    assert check_finetuning(recipe_of()) == []
    (found,) = check_finetuning(recipe_of({"model": over}))
    assert found.startswith(problem)
