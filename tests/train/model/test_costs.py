"""Parameters and multiply-accumulates of the documents' models, and the memory of a step."""

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.costs import Memory, costs, step_memory
from tokenfree.train.model.encoder import ModelConfig

BASE = ModelConfig()
CHARACTER_BERT = build(ModelConfig, {"downsampler": "identity", "upsampler": "identity"}, source="test")


def products(model: ModelConfig, length: int, num_targets: int | None = None) -> int:
    return sum(cost.multiply_accumulates for cost in costs(model, length, num_targets))


def test_parameters_of_canine_base() -> None:
    parameters = {cost.name: cost.parameters for cost in costs(BASE, 2048)}
    assert parameters == {
        "hash tables": 12_582_912,
        "position table": 12_582_912,
        "segment table + embedding norm": 13_824,
        "local layer": 7_087_872,
        "down convolution + norm": 2_361_600,
        "deep stack": 85_054_464,
        "pooler": 590_592,
        "up convolution + norm": 4_720_896,
        "final layer": 7_087_872,
    }
    assert sum(parameters.values()) == 132_082_944
    short = build(ModelConfig, {"embedder": {"max_characters": 2048}}, source="test")
    of_short = costs(short, 2048)
    assert sum(cost.parameters for cost in of_short) == 121_072_896
    assert {cost.name: cost.parameters for cost in of_short}["position table"] == 1_572_864


def test_parameters_of_ngrams() -> None:
    ngrams = build(ModelConfig, {"embedder": "ngram_hash"}, source="test")
    assert costs(ngrams, 2048)[0].parameters == 46_080_000


@pytest.mark.parametrize(
    ("num_targets", "final", "total"), [(None, 20.9, 95.0), (80, 3.1, 77.2), (320, 5.3, 79.4)]
)
def test_multiply_accumulates_of_canine_base(num_targets: int | None, final: float, total: float) -> None:
    billions = {
        cost.name: round(cost.multiply_accumulates / 1e9, 1) for cost in costs(BASE, 2048, num_targets)
    }
    assert billions["local layer"] == 14.9
    assert billions["down convolution + norm"] == 1.2
    assert billions["deep stack"] == 48.3
    assert billions["up convolution + norm"] == 9.7
    assert billions["final layer"] == final
    assert round(products(BASE, 2048, num_targets) / 1e9, 1) == total


def test_multiply_accumulates_of_classification() -> None:
    """The vector of the whole is there before UP."""
    needed = [cost for cost in costs(BASE, 2048) if cost.name not in ("up convolution + norm", "final layer")]
    assert round(sum(cost.multiply_accumulates for cost in needed) / 1e9, 1) == 64.4


def test_multiply_accumulates_of_bert() -> None:
    assert round(products(CHARACTER_BERT, 512) / 1e9, 1) == 48.3
    assert round(products(CHARACTER_BERT, 2048) / 1e9, 1) == 251.3


def test_shapes_along_the_way() -> None:
    shapes = {cost.name: cost.shape for cost in costs(BASE, 2048, 80)}
    assert shapes["local layer"] == (2048, 768)
    assert shapes["deep stack"] == (512, 768)
    assert shapes["final layer"] == (80, 768)


def test_windows_cost_less_than_full_attention() -> None:
    windows = build(ModelConfig, {"trunk": {"attention": "multi_scale"}}, source="test")
    pairs = products(BASE, 2048) - products(windows, 2048)
    assert 0 < pairs < 12 * 2 * 512 * 512 * 768


def test_memory_of_a_step() -> None:
    small = build(ModelConfig, {"width": 64, "trunk": {"layers": 2, "heads": 4, "dropout": 0}}, source="test")
    one, four = step_memory(small, 256, 1, 10), step_memory(small, 256, 4, 10)
    num_parameters = sum(cost.parameters for cost in costs(small, 256))
    assert one[:3] == (4 * num_parameters, 4 * num_parameters, 8 * num_parameters)
    assert one.total == sum(one)
    assert 3 < four.activations / one.activations <= 4
    assert isinstance(four, Memory)


def test_memory_is_that_of_tensors_kept_for_backward() -> None:
    small = build(ModelConfig, {"width": 64, "trunk": {"layers": 2, "heads": 4}}, source="test")
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    encoder = small.build()
    own = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    codepoints = torch.ones(2, 256, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = encoder(codepoints, codepoints.bool(), None, codepoints[:, :10])
    measured = sum(size for pointer, size in kept.items() if pointer not in own)
    assert output.pooled.requires_grad
    assert step_memory(small, 256, 2, 10).activations == pytest.approx(measured, rel=0.1)
