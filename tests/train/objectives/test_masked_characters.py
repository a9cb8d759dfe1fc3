"""Single characters as the unit of masking and prediction."""

from typing import Any

import numpy as np
import pytest

from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.base import Arrays
from tokenfree.train.objectives.masked_characters import Config

LENGTH = 128
TEXT = "the quick brown fox\njumps over the lazy dog 0123456789 \u4041 abc"


def collate(texts: list[str], ids: list[int] | None = None, *, length: int = LENGTH, **config: Any) -> Arrays:
    rows = {
        "codepoints": [np.array([ord(c) for c in text], np.int32) for text in texts],
        "whitespace": [np.array([c.isspace() for c in text], np.bool_) for text in texts],
    }
    return Config(**config).collator(None, length, 0)(
        rows, np.arange(len(texts)) if ids is None else np.array(ids)
    )


def test_targets_are_gold_characters_and_what_becomes_of_them() -> None:
    batch = collate([TEXT] * 3000)
    visible = sum(not c.isspace() for c in TEXT)
    assert (batch["target_mask"].sum(axis=1) == round(0.15 * visible)).all()
    gold = np.array([0, *map(ord, TEXT), 0])
    before = np.broadcast_to(gold, (3000, len(gold)))
    rows = np.nonzero(batch["target_mask"])[0]
    positions = batch["target_positions"][batch["target_mask"]]
    assert (batch["target_ids"][batch["target_mask"]] == gold[positions] % 16384).all()
    assert not any(chr(c).isspace() for c in gold[positions])
    now = batch["codepoints"][rows, positions]
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.01)
    other = (now != MASK) & (now != gold[positions])
    assert other.mean() == pytest.approx(0.1 * 0.97, abs=0.01)
    assert set(now[other]) <= {ord(c) for c in TEXT if not c.isspace()}
    changed = np.zeros((3000, len(gold)), dtype=bool)
    changed[rows, positions] = True
    inner = slice(1, len(gold) - 1)
    assert (batch["codepoints"][:, inner] == before[:, inner])[~changed[:, inner]].all()
    counts = np.bincount(positions, minlength=len(gold))[
        [*np.flatnonzero([0, *(not c.isspace() for c in TEXT)])]
    ]
    assert np.abs(counts / counts.mean() - 1).max() < 0.3


def test_a_row_is_masked_by_its_sample_id_alone_and_cropped_where_long() -> None:
    texts = [TEXT * (1 + number % 4) for number in range(40)]
    batch, again = collate(texts), collate([texts[i] for i in (7, 30)], ids=[7, 30])
    for name, array in batch.items():
        np.testing.assert_array_equal(again[name], array[[7, 30]])
        assert array.shape[0] == 40
    assert batch["num_characters"].max() <= LENGTH - 8
    assert batch["target_positions"].max() <= LENGTH - 8
    assert batch["target_mask"].any(axis=1).all()
    assert collate(["", " "])["target_mask"].sum() == 0
