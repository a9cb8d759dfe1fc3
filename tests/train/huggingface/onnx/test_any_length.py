"""What parts of a model compute for a graph of any length is what they compute otherwise."""

from typing import Any

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.core.settings_values import fingerprint
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.onnx import EncoderGraph, examples
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.workflows.recipes import library


def models() -> dict[str, ModelConfig]:
    """The models of all tiny recipes, each once, by the name of a recipe."""
    found: dict[str, tuple[str, ModelConfig]] = {}
    for name in library.names():
        mapping = library.read_based(name)
        if name.endswith("-tiny") and "model" in mapping and "space" not in mapping:
            model = build(PretrainRecipe, mapping, source=name).model
            found.setdefault(fingerprint(model), (name, model))
    return dict(found.values())


MODELS = models()


def parts(name: str) -> tuple[str, ...]:
    """Return the variants that a model consists of."""
    model: Any = MODELS[name]
    trunk = model.trunk
    slots = (
        model.embedder,
        model.downsampler,
        trunk.attention,
        trunk.positions,
        trunk.segments,
        model.upsampler,
    )
    return tuple(slot.name for slot in slots)


# The first model with its parts; the others differ in sizes.
QUICK = {parts(name): name for name in reversed(MODELS)}.values()


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_the_same_vectors_at_all_lengths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    graph = EncoderGraph(MODELS[name].build(), pooled_is_trained=True)
    with torch.no_grad():
        for parameter in graph.parameters():  # biases and position codes that begin at 0, too
            parameter.add_(0.02 * torch.randn_like(parameter))
        for inputs in examples(graph, 180 if MODELS[name].embedder.symbols == "characters" else 96):
            ours = graph(**inputs)
            with monkeypatch.context() as patch:
                patch.setattr(torch.compiler, "is_exporting", lambda: True)
                exported = graph(**inputs)
            for output, one, other in zip(graph.output_names, ours, exported, strict=True):
                assert torch.allclose(one, other, atol=1e-5, rtol=0), (output, inputs["codepoints"].shape)
