"""Second parts of other documents where the shard of the first has only one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from train.data.partners import partners
from train.data.reader import Split


def test_shards_of_one_document_take_partners_of_others(make_data: Callable[..., str], tmp_path: Path) -> None:
    """Each row of these data is a document of its own."""
    languages = ("en", "en", "de", "en", "sw")
    split = Split(make_data(tmp_path, [("validation", language, 1) for language in languages]), "validation")
    shards, ids = np.tile(np.arange(5), 100), np.arange(500)
    found, rows = partners(split, shards, np.zeros_like(shards), seed=0, sample_ids=ids)
    assert (rows == 0).all()
    elsewhere = found != shards
    assert 0.4 < elsewhere[np.isin(shards, (0, 1, 3))].mean() < 0.6
    assert {languages[shard] for shard in found[elsewhere]} == {"en"}
    assert set(zip(shards[elsewhere], found[elsewhere], strict=True)) == {
        (a, b) for a in (0, 1, 3) for b in (0, 1, 3) if a != b
    }
    assert not elsewhere[np.isin(shards, (2, 4))].any()  # the only documents in their languages


def test_a_shard_of_many_is_enough_for_itself(data: str) -> None:
    split = Split(data, "train")
    rows = np.arange(split.shards[0].rows)
    found, _ = partners(split, np.zeros_like(rows), rows, seed=0, sample_ids=rows)
    assert (found == 0).all()
