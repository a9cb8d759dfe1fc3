"""Shared parts of the conversions to models of the library transformers ("the port"): names, loading and checks."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import value_at
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.model.common.basic import LAYER_NORM_EPSILON, Activation
from tokenfree.train.model.encoder import Encoder, ModelConfig

StateDict = dict[str, Tensor]
# Returns the weights with some names of an encoder, from those of the port, which the function returns by name.
FromPort = Callable[[Iterable[str], Callable[[str], Tensor], ModelConfig], StateDict]

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
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
# Settings that every model of the port has.
SETTINGS = {
    "model.character_width": None,
    "model.embedder.positions": "learned",
    "model.trunk.layer.name": "bert",
    "model.trunk.attention.name": "full",
    "model.trunk.positions.name": "none",
    "model.trunk.segments.name": "none",
}
SAFETENSORS = "model.safetensors"
POOLER = "pooler.dense.weight"
# Prefixes of the weights of heads in transformers, and in modeling_tokenfree.py.
HEADS = {"classifier.": "head.classifier.output.", "qa_outputs.": "head.spans.", "lm_head.": "lm_head."}
LM_HEAD = "lm_head."  # prefix of an objective's head in exported folders
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST_SIZE = 1 << 24  # limit of sizes in a config.json


def port_name(name: str, modules: Mapping[str, str], layers: Mapping[str, str]) -> str:
    """Return the port's name of a weight. `modules` maps whole names, and `layers` maps patterns of BERT layers."""
    module, _, kind = name.rpartition(".")
    if module in modules:
        return f"{modules[module]}.{kind}"
    layer, _, part = module.rpartition(".")
    for pattern, template in layers.items():
        if re.fullmatch(pattern, layer):
            return f"{re.sub(pattern, template, layer)}.{LAYER_NAMES[part]}.{kind}"
    return name


def encoder_weights(state: Mapping[str, Tensor], prefix: str) -> StateDict:
    """Return the weights of the encoder in a checkpoint of the port, without heads, by their names without `prefix`."""
    has_prefix = any(name.startswith(prefix) for name in state)
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if (name.startswith(prefix) or not has_prefix)
        and not name.startswith(LM_HEAD)
        and not name.endswith("position_ids")
    }


def encoder_names(names: Iterable[str], port: Collection[str]) -> list[str]:
    """Return the `names` of an encoder's weights, without the pooler if `port`, the other names, has none."""
    return [name for name in names if POOLER in port or not name.startswith("pooler.")]


def loaded(
    config: ModelConfig, port: StateDict, from_port: FromPort, name_of: Callable[[str], str]
) -> Encoder:
    """Return an encoder with the weights of `port`, which is emptied. `name_of` gives their names there.

    A missing pooler stays freshly initialised. All shapes are checked before the encoder is allocated. Raises
    UserError if weights do not fit.
    """
    if config.trunk.layers > len(port):
        raise UserError(
            f"config.json: num_hidden_layers {config.trunk.layers}, but there are {len(port)} weights"
        )
    with torch.device("meta"):  # only shapes
        state = config.build().state_dict()
    weights = from_port(encoder_names(state, port), partial(take, port), config)
    if port:
        raise UserError(f"the checkpoint has weights that the model does not: {', '.join(sorted(port))}")
    for name, tensor in weights.items():
        if tensor.shape != state[name].shape:
            raise UserError(
                f"{name_of(name)} has the shape {tuple(tensor.shape)}, its config.json says {tuple(state[name].shape)}"
            )
    encoder = config.build()
    encoder.load_state_dict({**encoder.state_dict(), **weights})
    return encoder


def take(port: StateDict, name: str) -> Tensor:
    """Remove a weight from the checkpoint, and return it as float32.

    Raises UserError if it is missing or invalid.
    """
    if name not in port:
        raise UserError(f"the checkpoint lacks the weight {name}")
    if port[name].dtype not in TYPES or port[name].layout != torch.strided:
        kind = f"{port[name].dtype} {port[name].layout}".replace("torch.", "").removesuffix(" strided")
        raise UserError(
            f"the weight {name} is of the type {kind}; save the model as float32, float16 or bfloat16"
        )
    weight = port.pop(name).to(torch.float32)
    if not torch.isfinite(weight).all():
        raise UserError(
            f"the weight {name} holds NaN or infinity. Give weights of a training that did not diverge."
        )
    return weight


def whole_number(fields: Mapping[str, Any], key: str, default: int) -> int:
    """Return a size from a config of the port.

    Raises UserError if it is not a whole number from 1 to the limit.
    """
    value = fields.get(key, default)
    if type(value) is not int or not 0 < value < LARGEST_SIZE:
        raise UserError(
            f"config.json: {key} must be a whole number from 1 to {LARGEST_SIZE - 1:,}, not {value!r}"
        )
    return value


def layer_fields(config: ModelConfig) -> dict[str, Any]:
    trunk = config.trunk
    return {
        "hidden_size": config.width,
        "num_hidden_layers": trunk.layers,
        "num_attention_heads": trunk.heads,
        "intermediate_size": config.dimensions.inner_width,
        "hidden_act": "gelu" if trunk.activation == "gelu" else "gelu_pytorch_tanh",
        "hidden_dropout_prob": trunk.dropout,
        "attention_probs_dropout_prob": trunk.dropout,
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }


def trunk_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `model.trunk` from a config of the port.

    Raises UserError if a setting is not supported.
    """
    activation = fields.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UserError(
            f"config.json: hidden_act {activation!r} is not known; known are {', '.join(ACTIVATIONS)}"
        )
    dropout, other = fields.get("hidden_dropout_prob", 0.1), fields.get("attention_probs_dropout_prob", 0.1)
    if dropout != other:
        raise UserError(
            f"config.json: hidden_dropout_prob {dropout} and attention_probs_dropout_prob {other} differ"
        )
    require(fields, layer_norm_eps=LAYER_NORM_EPSILON)
    return {
        "layers": whole_number(fields, "num_hidden_layers", 12),
        "heads": whole_number(fields, "num_attention_heads", 12),
        "inner_width": whole_number(fields, "intermediate_size", 3072),
        "dropout": dropout,
        "activation": ACTIVATIONS[activation],
    }


def require(fields: Mapping[str, Any], **values: Any) -> None:
    """Raise UserError if one of these fields of a config of the port has another value than the only supported one."""
    for key, value in values.items():
        if fields.get(key, value) != value:
            raise UserError(f"config.json: {key} must be {value}, not {fields[key]}")


def differences(config: ModelConfig, expected: Mapping[str, Any]) -> list[str]:
    """Return a problem for each dotted key in `expected` and `SETTINGS` that has another value in `config`, if any."""
    mapping, wrong = to_mapping(config), []
    for key, value in {**SETTINGS, **expected}.items():
        actual = value_at(mapping, key.partition(".")[2], value)
        if actual != value:
            wrong.append(f"{key} must be {value!r}, not {actual!r}")
    return wrong
