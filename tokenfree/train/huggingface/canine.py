"""Lossless conversion of CANINE's weights to and from the names of transformers.CanineModel."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.huggingface import weight_names as port
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.model.embedders.characters import NUM_SEGMENTS
from tokenfree.train.model.encoder import Encoder, ModelConfig

HASH_TABLE = "char_embeddings.HashBucketCodepointEmbedder_{}.weight"
POSITIONS = "char_embeddings.char_position_embeddings.weight"

NAMES = {
    "embedder.segments": "char_embeddings.token_type_embeddings",
    "embedder.norm": "char_embeddings.LayerNorm",
    "downsampler.convolution": "chars_to_molecules.conv",
    "downsampler.norm": "chars_to_molecules.LayerNorm",
    "pooler": "pooler.dense",
    "upsampler.convolution": "projection.conv",
    "upsampler.norm": "projection.LayerNorm",
}
LAYERS = {
    r"downsampler\.local\.(\d+)": r"initial_char_encoder.layer.\1",
    r"trunk\.layers\.(\d+)": r"encoder.layer.\1",
    r"upsampler\.final": r"final_char_encoder.layer.0",
}
_port_name = functools.partial(port.port_name, modules=NAMES, layers=LAYERS)


def to_huggingface(encoder: Encoder, config: ModelConfig) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights and the config fields of a CanineModel.

    Raises UserError if it cannot express the model. The port's position table has as many rows as there are
    buckets. Missing rows, which it never reads, are zeros.
    """
    _check_expressible(config)
    embedder = config.embedder
    state = {name: tensor.detach() for name, tensor in encoder.state_dict().items()}
    rows, positions = state.pop("embedder.table.rows.weight"), state.pop("embedder.positions.weight")
    translated = {_port_name(name): tensor for name, tensor in state.items()}
    for k, table in enumerate(rows.chunk(embedder.hashes)):
        translated[HASH_TABLE.format(k)] = table.clone()
    translated[POSITIONS] = F.pad(positions, (0, 0, 0, embedder.buckets - embedder.max_characters))
    return translated, {
        "model_type": "canine",
        "architectures": ["CanineModel"],
        **port.layer_fields(config),
        "max_position_embeddings": embedder.max_characters,
        "type_vocab_size": embedder.segments,
        "downsampling_rate": config.downsampler.rate,
        "upsampling_kernel_size": config.upsampler.kernel,
        "num_hash_functions": embedder.hashes,
        "num_hash_buckets": embedder.buckets,
        "local_transformer_stride": config.downsampler.block,
    }


def from_huggingface(state: Mapping[str, Tensor], fields: Mapping[str, Any]) -> tuple[Encoder, ModelConfig]:
    """Return an encoder with the weights of a CanineModel, and its settings, from the fields of its CanineConfig.

    The prefix `canine.` and heads of task models are left out. A missing pooler is freshly initialised.
    Raises UserError if weights do not fit or a setting is not supported.
    """
    port.require(fields, type_vocab_size=NUM_SEGMENTS)
    buckets = port.whole_number(fields, "num_hash_buckets", 16384)
    mapping = {
        "width": port.whole_number(fields, "hidden_size", 768),
        "embedder": {
            "name": "codepoint_hash",
            "hashes": port.whole_number(fields, "num_hash_functions", 8),
            "buckets": buckets,
            "max_characters": min(buckets, port.whole_number(fields, "max_position_embeddings", 16384)),
        },
        "downsampler": {
            "name": "strided_conv",
            "rate": port.whole_number(fields, "downsampling_rate", 4),
            "block": port.whole_number(fields, "local_transformer_stride", 128),
        },
        "trunk": port.trunk_of(fields),
        "upsampler": {
            "name": "repeat_concat",
            "kernel": port.whole_number(fields, "upsampling_kernel_size", 4),
        },
    }
    config = build(ModelConfig, mapping, source="config.json")
    return port.loaded(config, port.encoder_weights(state, "canine."), from_port, _port_name), config


def from_port(names: Iterable[str], weight: Callable[[str], Tensor], config: ModelConfig) -> StateDict:
    """Return the weights `names` of an encoder. `weight` returns those of a CanineModel by their names."""
    embedder = config.embedder
    weights = {
        "embedder.table.rows.weight": torch.cat(
            [weight(HASH_TABLE.format(k)) for k in range(embedder.hashes)]
        ),
        "embedder.positions.weight": weight(POSITIONS)[: embedder.max_characters],
    }
    return weights | {name: weight(_port_name(name)) for name in names if name not in weights}


def _check_expressible(config: ModelConfig) -> None:
    expected = {
        "model.embedder.name": "codepoint_hash",
        "model.embedder.family": "official",
        "model.embedder.segments": NUM_SEGMENTS,
        "model.downsampler.name": "strided_conv",
        "model.downsampler.layers": 1,
        "model.downsampler.align_mask": False,
        "model.upsampler.name": "repeat_concat",
        "model.upsampler.keys": "characters",
    }
    wrong = port.differences(config, expected)
    if not wrong and config.embedder.max_characters > config.embedder.buckets:
        wrong.append(
            f"model.embedder.max_characters, {config.embedder.max_characters}, must not exceed "
            f"model.embedder.buckets, {config.embedder.buckets}, which the port takes for the size of both tables"
        )
    if wrong:
        raise UserError("transformers.CanineModel cannot express this model: " + "; ".join(wrong))
