"""What each collator says that the input shows in the place of a target is what stands there."""

from typing import Any

import numpy as np
import pytest

from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.text import specials
from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.base import KEPT, MASKED, REPLACED, Arrays
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import validation_batches
from tokenfree.train.objectives import byte2word, canine_c, canine_s, masked_characters, masked_subwords

OBJECTIVES: dict[str, tuple[Any, int]] = {
    "canine_s": (canine_s.Config(mask_fraction=0.5), 64),
    "canine_c": (canine_c.Config(mask_fraction=0.5, masked=0.9), 64),
    "masked_characters": (masked_characters.Config(mask_fraction=0.5), 64),
    "masked_subwords": (masked_subwords.Config(mask_fraction=0.5), 64),
    "byte2word": (byte2word.Config(mask_fraction=0.5, bytes_per_word=2), 144),
}


def batch_of(corpus: str, name: str, **changes: Any) -> Arrays:
    config, length = OBJECTIVES[name]
    config = type(config)(**{"mask_fraction": config.mask_fraction, **changes}) if changes else config
    collator = config.collator(load_vocabulary(corpus), length, 0)
    (batch,) = validation_batches(
        ShardReader(corpus, "validation"), collator=collator, num_windows=200, batch=200
    )
    return batch


@pytest.mark.parametrize("name", OBJECTIVES)
def test_kinds_are_what_the_input_shows(corpus: str, name: str) -> None:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    pieces, batch = vocabulary.pieces, batch_of(corpus, name)
    counts = np.zeros(3, dtype=int)
    for row, at in np.argwhere(batch["target_mask"]).tolist():
        gold, kind = int(batch["target_ids"][row, at]), int(batch["target_kinds"][row, at])
        counts[kind] += 1
        place, line = batch["target_positions"][row, at], batch["codepoints"][row]
        if name == "byte2word":
            start, end = (int(batch["unit_ends"][row, place[0] - back]) for back in (1, 0))
            shown: Any = bytes(line[start:end].tolist())
            assert (kind == MASKED) == (shown == bytes([specials.BYTE_MASK]))
            if kind == KEPT:
                assert pieces[gold].strip("▁") in shown.decode()
        elif name == "masked_subwords":
            shown = int(line[place])
            assert kind == (MASKED if shown == len(pieces) + 2 else KEPT if shown == gold else REPLACED)
        elif name == "canine_s":
            shown = chr(line[place])
            assert (kind == MASKED) == (line[place] == MASK)
            if kind == KEPT:
                assert shown in pieces[gold]
        else:
            shown = int(line[place])
            assert kind == (MASKED if shown == MASK else KEPT if shown == gold else REPLACED)
    kinds = {MASKED, KEPT} if name == "canine_c" else {MASKED, REPLACED, KEPT}
    assert {kind for kind, count in enumerate(counts) if count} == kinds
    shares = counts / counts.sum()
    assert shares[MASKED] == pytest.approx(0.9 if name == "canine_c" else 0.8, abs=0.05)
    assert not batch["target_kinds"][~batch["target_mask"]].any()


def test_a_replacement_by_itself_is_kept(corpus: str) -> None:
    """CANINE-S draws among all subwords of a length and kind, the hidden one included."""
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    batch, pieces = batch_of(corpus, "canine_s"), vocabulary.pieces
    replaced = np.argwhere(batch["target_mask"] & (batch["target_kinds"] == REPLACED)).tolist()
    others = 0
    for row, at in replaced:
        text = "".join(map(chr, batch["codepoints"][row]))
        piece, place = (
            pieces[batch["target_ids"][row, at]].strip("▁"),
            int(batch["target_positions"][row, at]),
        )
        starts = range(place - len(piece) + 1, place + 1)
        others += all(text[start : start + len(piece)] != piece for start in starts)
    assert others == len(replaced)
