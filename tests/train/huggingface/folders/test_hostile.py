"""Folders of transformers that lie about their sizes, hold odd numbers, or would run code: refused in a line."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.huggingface import canine
from tokenfree.train.huggingface.folders import read_folder
from tokenfree.train.model.encoder import ModelConfig

GIB = 1 << 20  # in KiB, the unit of the peak
SMALL = {
    "width": 16,
    "embedder": {"buckets": 64, "hashes": 2, "max_characters": 32},
    "downsampler": {"rate": 4, "block": 16},
    "trunk": {"layers": 1, "heads": 2, "inner_width": 32},
}


class Bomb:
    """What runs a command where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.fixture(scope="module")
def model() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and config.json of a small CANINE."""
    config = build(ModelConfig, SMALL, source="test")
    state, fields = canine.to_huggingface(config.build(), config)
    return {name: tensor.clone() for name, tensor in state.items()}, fields


def write(folder: Path, state: dict[str, Any], fields: Any, *, as_pickle: bool = False) -> Path:
    (folder / "config.json").write_text(fields if isinstance(fields, str) else json.dumps(fields))
    if as_pickle:
        torch.save(state, folder / "pytorch_model.bin")
    else:
        safetensors.torch.save_file(state, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "key",
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
     "downsampling_rate", "upsampling_kernel_size", "num_hash_functions", "num_hash_buckets",
     "local_transformer_stride"],
)  # fmt: skip
@pytest.mark.parametrize("value", [10**6, 10**12, 10**30, -1, 0, 1.5, "16", None, True, [16], {}])
def test_sizes_that_the_weights_do_not_have(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path, key: str, value: Any
) -> None:
    state, fields = model
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    folder = write(tmp_path, state, {**fields, key: value})
    # No weight depends on them.
    if value == 10**6 and key in ("local_transformer_stride", "max_position_embeddings"):
        assert read_folder(folder).encoder.config.width == 16
    else:
        with pytest.raises(UserError) as told:
            read_folder(folder)
        assert len(str(told.value)) < 400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIB // 4


@pytest.mark.parametrize(
    "fields", ["[" * 100_000, '{"model_type": ["canine"]}', '{"model_type": "canine", "hidden_act": ["gelu"]}',
               '{"model_type": "canine", "num_hidden_layers": ' + "9" * 5000 + "}", "\x00"]
)  # fmt: skip
def test_a_config_of_odd_values(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path, fields: str
) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        read_folder(write(tmp_path, model[0], fields))


@pytest.mark.parametrize(
    "type", [torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e8m0fnu]
)
def test_numbers_that_do_not_stand_for_themselves(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path, type: torch.dtype
) -> None:
    state, fields = model
    name = "encoder.layer.0.output.dense.bias"
    folder = write(tmp_path, {**state, name: torch.zeros(16).to(type)}, fields)
    with pytest.raises(UserError, match=rf"the weight {name} is of the type {str(type)[6:]}; save"):
        read_folder(folder)


@pytest.mark.parametrize("type", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_that_do(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path, type: torch.dtype
) -> None:
    state, fields = model
    folder = write(tmp_path, {name: tensor.to(type) for name, tensor in state.items()}, fields)
    assert {tensor.dtype for tensor in read_folder(folder).encoder.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("as_pickle", [False, True])
def test_weights_that_are_not_finite(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path, value: float, as_pickle: bool
) -> None:
    state, fields = model
    name = "encoder.layer.0.output.dense.bias"
    folder = write(tmp_path, {**state, name: torch.tensor([0.0] * 15 + [value])}, fields, as_pickle=as_pickle)
    with pytest.raises(UserError, match=rf"the weight {name} holds NaN or infinity\. Give weights"):
        read_folder(folder)


def test_tensors_that_are_not_stored_whole(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path
) -> None:
    state, fields = model
    name = "encoder.layer.0.output.dense.weight"
    for tensor in (
        torch.zeros(1).expand(10**6, 10**6),
        torch.empty(16, 32, device="meta"),
        torch.zeros(16, 32).to_sparse(),
    ):
        folder = write(tmp_path, {**state, name: tensor}, {**fields, "hidden_size": 10**6}, as_pickle=True)
        with pytest.raises(UserError, match="damaged, or more than weights"):
            read_folder(folder)


def test_a_pickle_that_would_run_code(
    model: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path
) -> None:
    state, fields = model
    folder = write(tmp_path, {**state, "bomb": Bomb()}, fields, as_pickle=True)
    for _ in range(2):
        with pytest.raises(UserError, match=r"damaged, or more than weights\. .* give model\.safe") as told:
            read_folder(folder)
        assert "weights_only" not in str(told.value)
        (folder / "pytorch_model.bin").write_bytes(b"garbage" * 9)
