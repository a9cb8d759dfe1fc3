"""What heads of tasks take from the encoder: no more of it is computed than they need.

B batch, C characters, P places, U units after DOWN, D width
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tokenfree.train.model.encoder import mean_of_text

_GIVEN = {"segments_BC": "segments", "unit_ends_BU": "unit_ends", "global_BC": "global"}


def encode_units(encoder: Any, batch: Mapping[str, Tensor], prefix: str = "") -> tuple[Tensor, Tensor]:
    """The units [B, U, D] and which of them are real, bool [B, U], CLS and SEP included; nothing is upsampled.

    Args:
        encoder: an `Encoder`.
        batch: of a task's collator.
        prefix: before the names of the arrays that are read.
    """
    given = {name: batch[prefix + key] for name, key in _GIVEN.items() if prefix + key in batch}
    down, units_BUD = encoder.encode(batch[f"{prefix}codepoints"], batch[f"{prefix}mask"], **given)
    return units_BUD, down.valid_BU


def encode_places(encoder: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The vectors [B, P, D] at the `places` of a batch, int64 [B, P]: of units where units are words of the text, else
    of symbols, of which only these are upsampled.
    """
    places_BP = batch["places"]
    if "unit_ends" in batch:
        units_BUD, _ = encode_units(encoder, batch)
        return units_BUD.gather(1, places_BP[..., None].expand(-1, -1, units_BUD.shape[-1]))
    given = {name: batch[key] for name, key in _GIVEN.items() if key in batch}
    return encoder(batch["codepoints"], batch["mask"], targets_BP=places_BP, **given).characters


def encode_all(encoder: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """All vectors [B, P, D], of units where units are words of the text, else of symbols; and the pooled one [B, D]."""
    if "unit_ends" in batch:
        units_BUD, _ = encode_units(encoder, batch)
        return units_BUD, encoder.pool(units_BUD)
    given = {name: batch[key] for name, key in _GIVEN.items() if key in batch}
    out = encoder(batch["codepoints"], batch["mask"], **given)
    return out.characters, out.pooled


def encode_mean(encoder: Any, batch: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """Return the means [B, D] of `load_encoder`: over the characters of each text, or its words where units are words.

    Args:
        encoder, batch, prefix: as of `encode_units`.
    """
    if f"{prefix}unit_ends" in batch:
        return mean_of_text(*encode_units(encoder, batch, prefix))
    given = {name: batch[prefix + key] for name, key in _GIVEN.items() if prefix + key in batch}
    mask_BC = batch[f"{prefix}mask"]
    return mean_of_text(encoder(batch[f"{prefix}codepoints"], mask_BC, **given).characters, mask_BC)


def class_and_maximum(units_BUD: Tensor, valid_BU: Tensor) -> Tensor:
    """The class node beside the largest value of each feature over all real units, it included: [B, 2 D].

    Guo et al., Multi-Scale Self-Attention for Text Classification, https://arxiv.org/abs/1912.00544, section 3.2.
    """
    largest_BD = units_BUD.masked_fill(~valid_BU[..., None], -torch.inf).amax(dim=1)
    return torch.cat([units_BUD[:, 0], largest_BD], dim=-1)
