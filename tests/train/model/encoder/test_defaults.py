"""The defaults of every part, objective and optimizer: those of the papers, or what the documents chose."""

from typing import Any

import pytest

from tokenfree.core.settings import Slot
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.model.encoder import ModelConfig

INPUT: dict[str, Any] = {"positions": "learned", "max_characters": 16384, "segments": 16}
UP: dict[str, Any] = {"kernel": 4, "keys": "characters", "targeted": True}
STRIDED: dict[str, Any] = {"rate": 4, "block": 128, "layers": 1, "align_mask": False}
BUCKETS = {"buckets": 16384}
MASK: dict[str, Any] = {"mask_fraction": 0.15, "validation_mask_fraction": 0.15, "output_bias": "zeros"}
MASKED: dict[str, Any] = {**MASK, "next_sentence": False}
ADAM: dict[str, Any] = {"weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999}

DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "model.embedders": {
        "byte_table": INPUT,
        "character_vocabulary": {**INPUT, "size": 8192},
        "codepoint_hash": {**INPUT, "hashes": 8, "buckets": 16384, "family": "official"},
        "ngram_hash": {**INPUT, "orders": 4, "hashes": 8, "buckets": 15000, "family": "official"},
        "subword_table": {"positions": "learned", "max_characters": 512, "segments": 2, "size": 30522},
        "vectors": {"size": 50, "positions": "none", "max_characters": 512},
        "word_bytes": {},
    },
    "model.downsamplers": {
        "character_cnn": {"widths": [1, 2, 3, 4, 5], "counts": [16, 32, 48, 48, 48], "highways": 2, "word_width": 192,
                          "max_words": 512, "bytes_per_word": 8},
        "identity": {},
        "strided_attention": STRIDED,
        "strided_conv": STRIDED,
        "strided_mean": STRIDED,
        "word_pooling": {"max_words": 512, "num_queries": None, "byte_positions": "none", "bytes_per_word": 8},
    },
    "model.upsamplers": {
        "identity": {},
        "repeat_add": {**UP, "residual_characters": False, "residual_units": False},
        "repeat_concat": UP,
        "subword_queries": {"max_pieces": 16},
    },
    "model.layers": {"bert": {}, "multi_scale": {"head_width": None}, "pre_ln": {}},
    "model.attention": {
        "causal": {},
        "full": {},
        "linformer": {"projection": 32, "max_units": 512},
        "multi_scale": {"alpha": 0.5, "scales": [1, 3, "N/16", "N/8", "N/4"], "window_convention": "width",
                        "slope": "harmonic"},
        "sliding_global": {"one_sided_window": 64, "dilation": 1, "global_units": 1,
                           "separate_global_projections": False, "padding_queries": "attend"},
    },
    "model.positions": {
        "diet_abs": {"rank": None, "sharing": "layer_wise", "max_units": 512, "scale": "head_width"},
        "diet_rel": {"sharing": "none", "max_units": 512, "scale": "head_width"},
        "none": {},
        "shaw": {"clip": 128, "values": False, "sharing": "head_wise"},
        "t5": {"buckets": 32, "max_distance": 128, "sharing": "layer_wise"},
        "tupe": {"relative": True, "untie_cls": True, "max_units": 512},
    },
    "model.segments": {"none": {}, "per_head": {"num_segments": 2, "sharing": None}},
    "objectives": {
        "byte2word": {**MASK, "output_rows": "free", "words": "rules", "max_predictions": 160, "max_pieces": 16,
                      "bytes_per_word": 8, "lower_case": False},
        "canine_c": {**MASKED, **BUCKETS, "max_predictions": 320, "masked": 1.0, "max_word": 32, "heads": 12,
                     "dropout": 0.1, "spare": 6},
        "canine_s": {**MASKED, "output_rows": "free", "max_predictions": 80, "spare": 6},
        "masked_bytes": {**MASK, "max_predictions": 320, "spare": 0},
        "masked_characters": {**MASKED, **BUCKETS, "max_predictions": 320, "spare": 6},
        "masked_subwords": {**MASKED, "output_rows": "free", "max_predictions": 80, "tied": False},
    },
    "optimizers": {"adamw": {**ADAM, "epsilon": 1e-8}, "adamw_bert": {**ADAM, "epsilon": 1e-6},
                   "lamb": {**ADAM, "epsilon": 1e-6}},
}  # fmt: skip


@pytest.mark.parametrize("package", DEFAULTS)
def test_of_parts(package: str) -> None:
    slot = Slot(f"tokenfree.train.{package}", "")
    found = {name: to_mapping(slot.config_class(name)()) for name in slot.names()}
    assert found == {name: {"name": name, **mapping} for name, mapping in DEFAULTS[package].items()}


def test_of_the_model() -> None:
    """CANINE's base size."""
    found = to_mapping(ModelConfig())
    assert {name: found[name] for name in ("width", "character_width")} == {
        "width": 768,
        "character_width": None,
    }
    parts = {name: found[name]["name"] for name in ("embedder", "downsampler", "upsampler")}
    assert parts == {
        "embedder": "codepoint_hash",
        "downsampler": "strided_conv",
        "upsampler": "repeat_concat",
    }
    trunk = {
        name: value["name"] if isinstance(value, dict) else value for name, value in found["trunk"].items()
    }
    assert trunk == {"layers": 12, "heads": 12, "inner_width": None, "dropout": 0.1, "activation": "gelu_tanh",
                     "layer": "bert", "attention": "full", "positions": "none", "segments": "none"}  # fmt: skip
