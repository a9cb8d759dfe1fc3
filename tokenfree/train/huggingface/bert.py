"""Lossless conversion of a subword BERT's weights to and from the names of transformers.BertModel."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.huggingface import weight_names as port
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.model.encoder import Encoder, ModelConfig

NAMES = {
    "embedder.table.rows": "embeddings.word_embeddings",
    "embedder.positions": "embeddings.position_embeddings",
    "embedder.segments": "embeddings.token_type_embeddings",
    "embedder.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
LAYERS = {r"trunk\.layers\.(\d+)": r"encoder.layer.\1"}
_port_name = functools.partial(port.port_name, modules=NAMES, layers=LAYERS)


def to_huggingface(encoder: Encoder, config: ModelConfig) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights and the config fields of a BertModel.

    Raises UserError if it cannot express the model.
    """
    expected = {
        "model.embedder.name": "subword_table",
        "model.downsampler.name": "identity",
        "model.upsampler.name": "identity",
    }
    wrong = port.differences(config, expected)
    if not wrong and config.embedder.segments == 0:
        wrong.append("model.embedder.segments must be at least 1, not 0")
    if wrong:
        raise UserError("transformers.BertModel cannot express this model: " + "; ".join(wrong))
    state = {_port_name(name): tensor.detach() for name, tensor in encoder.state_dict().items()}
    return state, {
        "model_type": "bert",
        "architectures": ["BertModel"],
        **port.layer_fields(config),
        "vocab_size": config.embedder.size,
        "max_position_embeddings": config.embedder.max_characters,
        "type_vocab_size": config.embedder.segments,
    }


def from_huggingface(state: Mapping[str, Tensor], fields: Mapping[str, Any]) -> tuple[Encoder, ModelConfig]:
    """Return an encoder with the weights of a BertModel, and its settings, from the fields of its BertConfig.

    The prefix `bert.` and heads of task models are left out. A missing pooler is freshly initialised. Raises
    UserError if weights do not fit or a setting is not supported.
    """
    port.require(fields, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    mapping = {
        "width": port.whole_number(fields, "hidden_size", 768),
        "embedder": {
            "name": "subword_table",
            "size": port.whole_number(fields, "vocab_size", 30522),
            "max_characters": port.whole_number(fields, "max_position_embeddings", 512),
            "segments": port.whole_number(fields, "type_vocab_size", 2),
        },
        "downsampler": "identity",
        "trunk": port.trunk_of(fields),
        "upsampler": "identity",
    }
    config = build(ModelConfig, mapping, source="config.json")
    return port.loaded(config, port.encoder_weights(state, "bert."), from_port, _port_name), config


def from_port(names: Iterable[str], weight: Callable[[str], Tensor], config: ModelConfig) -> StateDict:
    """Return the weights `names` of an encoder. `weight` returns those of a BertModel by their names."""
    return {name: weight(_port_name(name)) for name in names}
