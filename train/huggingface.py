"""Weights of CANINE to and from the names of transformers.CanineModel, complete and without loss both ways."""

import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from preprocess.errors import UserError
from preprocess.settings import build, to_mapping
from train.embedders.characters import NUM_SEGMENTS
from train.layers import LAYER_NORM_EPSILON
from train.model import Encoder, ModelConfig

StateDict = dict[str, Tensor]

ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
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
LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "norm": "output.LayerNorm",
}


def to_huggingface(encoder: Encoder, config: ModelConfig) -> tuple[StateDict, dict[str, Any]]:
    """The state dict of `encoder` under the port's names, and the fields of its CanineConfig.

    The port has as many rows in its position table as buckets; missing ones, which it never reads, are zeros.

    Raises:
        UserError: for a model that CanineModel cannot express, naming every field in the way.
    """
    _check_expressible(config)
    embedder, trunk = config.embedder, config.trunk
    state = {name: tensor.detach() for name, tensor in encoder.state_dict().items()}
    rows, positions = state.pop("embedder.table.rows.weight"), state.pop("embedder.positions.weight")
    translated = {_to_port(name): tensor for name, tensor in state.items()}
    for k, table in enumerate(rows.chunk(embedder.hashes)):
        translated[HASH_TABLE.format(k)] = table.clone()
    translated[POSITIONS] = F.pad(positions, (0, 0, 0, embedder.buckets - embedder.max_characters))
    return translated, {
        "model_type": "canine",
        "architectures": ["CanineModel"],
        "hidden_size": config.width,
        "num_hidden_layers": trunk.layers,
        "num_attention_heads": trunk.heads,
        "intermediate_size": config.dimensions.inner_width,
        "hidden_act": "gelu" if trunk.activation == "gelu" else "gelu_pytorch_tanh",
        "hidden_dropout_prob": trunk.dropout,
        "attention_probs_dropout_prob": trunk.dropout,
        "max_position_embeddings": embedder.max_characters,
        "type_vocab_size": encoder.embedder.segments.num_embeddings,
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "downsampling_rate": config.downsampler.rate,
        "upsampling_kernel_size": config.upsampler.kernel,
        "num_hash_functions": embedder.hashes,
        "num_hash_buckets": embedder.buckets,
        "local_transformer_stride": config.downsampler.block,
    }


def from_huggingface(state: Mapping[str, Tensor], fields: Mapping[str, Any]) -> tuple[Encoder, ModelConfig]:
    """The encoder with the weights of a CanineModel, and its settings, from the fields of its CanineConfig.

    Names may carry the prefix `canine.` of the port's task models, whose heads are left out. A model without pooler
    gets a fresh one.

    Raises:
        UserError: for weights that are missing, unknown or of another shape, and for settings that we lack.
    """
    config = _config_of(fields)
    encoder = config.build()
    port = {name.removeprefix("canine."): tensor for name, tensor in state.items() if _is_of_encoder(name, state)}
    own = encoder.state_dict()
    embedder = config.embedder
    tables = [_take(port, HASH_TABLE.format(k)) for k in range(embedder.hashes)]
    loaded = {
        "embedder.table.rows.weight": torch.cat(tables),
        "embedder.positions.weight": _take(port, POSITIONS)[: embedder.max_characters],
    }
    for name in own.keys() - loaded.keys():
        if (
            name.startswith("pooler.")
            and "pooler.dense.weight" not in state
            and "canine.pooler.dense.weight" not in state
        ):
            loaded[name] = own[name]
        else:
            loaded[name] = _take(port, _to_port(name))
    if port:
        raise UserError(f"the checkpoint has weights that CANINE does not: {', '.join(sorted(port))}")
    for name, tensor in loaded.items():
        if tensor.shape != own[name].shape:
            raise UserError(
                f"{_to_port(name)} has the shape {tuple(tensor.shape)}, its config.json says {tuple(own[name].shape)}"
            )
    encoder.load_state_dict(loaded)
    return encoder, config


def _config_of(fields: Mapping[str, Any]) -> ModelConfig:
    activation = fields.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(f"config.json: hidden_act {activation!r} is not known; known are {', '.join(ACTIVATIONS)}")
    dropout, other = fields.get("hidden_dropout_prob", 0.1), fields.get("attention_probs_dropout_prob", 0.1)
    if dropout != other:
        raise UserError(f"config.json: hidden_dropout_prob {dropout} and attention_probs_dropout_prob {other} differ")
    for key, value in (("type_vocab_size", NUM_SEGMENTS), ("layer_norm_eps", LAYER_NORM_EPSILON)):
        if fields.get(key, value) != value:
            raise UserError(f"config.json: {key} must be {value}, not {fields[key]}")
    buckets = fields.get("num_hash_buckets", 16384)
    mapping = {
        "width": fields.get("hidden_size", 768),
        "embedder": {
            "name": "codepoint_hash",
            "hashes": fields.get("num_hash_functions", 8),
            "buckets": buckets,
            "max_characters": min(buckets, fields.get("max_position_embeddings", 16384)),
        },
        "downsampler": {
            "name": "strided_conv",
            "rate": fields.get("downsampling_rate", 4),
            "block": fields.get("local_transformer_stride", 128),
        },
        "trunk": {
            "layers": fields.get("num_hidden_layers", 12),
            "heads": fields.get("num_attention_heads", 12),
            "inner_width": fields.get("intermediate_size", 3072),
            "dropout": dropout,
            "activation": ACTIVATIONS[activation],
        },
        "upsampler": {"name": "repeat_concat", "kernel": fields.get("upsampling_kernel_size", 4)},
    }
    return build(ModelConfig, mapping, source="config.json")


def _check_expressible(config: ModelConfig) -> None:
    wanted = {
        "model.embedder.name": "codepoint_hash",
        "model.embedder.family": "official",
        "model.downsampler.name": "strided_conv",
        "model.downsampler.layers": 1,
        "model.downsampler.align_mask": False,
        "model.trunk.layer.name": "bert",
        "model.trunk.attention.name": "full",
        "model.trunk.positions.name": "none",
        "model.upsampler.name": "repeat_concat",
    }
    mapping = to_mapping(config)
    wrong = []
    for key, value in wanted.items():
        node: Any = mapping
        for name in key.split(".")[1:]:
            node = node.get(name, value)
        if node != value:
            wrong.append(f"{key} must be {value!r}, not {node!r}")
    if not wrong and config.embedder.max_characters > config.embedder.buckets:
        wrong.append(
            f"model.embedder.max_characters, {config.embedder.max_characters}, must not exceed "
            f"model.embedder.buckets, {config.embedder.buckets}, which the port takes for the size of both tables"
        )
    if wrong:
        raise UserError("transformers.CanineModel cannot express this model: " + "; ".join(wrong))


def _to_port(name: str) -> str:
    """The port's name of one of our weights."""
    module, _, kind = name.rpartition(".")
    if module in NAMES:
        return f"{NAMES[module]}.{kind}"
    layer, _, part = module.rpartition(".")
    for pattern, template in LAYERS.items():
        if re.fullmatch(pattern, layer):
            return f"{re.sub(pattern, template, layer)}.{LAYER_NAMES[part]}.{kind}"
    return name


def _is_of_encoder(name: str, state: Mapping[str, Tensor]) -> bool:
    has_prefix = any(other.startswith("canine.") for other in state)
    return (name.startswith("canine.") or not has_prefix) and not name.endswith("position_ids")


def _take(port: StateDict, name: str) -> Tensor:
    if name not in port:
        raise UserError(f"the checkpoint lacks the weight {name}")
    return port.pop(name)
