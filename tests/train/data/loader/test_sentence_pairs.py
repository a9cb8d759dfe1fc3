"""Second segments of other documents where the shard of the first has only one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenfree.train.data.loader import second_segments
from tokenfree.train.data.shards import ShardReader


def test_shards_of_one_document_look_in_others(make_data: Callable[..., str], tmp_path: Path) -> None:
    """Each row of these data is a document of its own."""
    languages = ("en", "en", "de", "en", "sw")
    reader = ShardReader(
        make_data(tmp_path, [("validation", language, 1) for language in languages]), "validation"
    )
    shards, ids = np.tile(np.arange(5), 100), np.arange(500)
    found, rows = second_segments(reader, shards, np.zeros_like(shards), seed=0, sample_ids=ids)
    assert (rows == 0).all()
    english = np.isin(shards, (0, 1, 3))
    elsewhere = found != shards
    assert elsewhere[english].mean() > 0.9  # four draws may all be of the row's own
    assert {languages[shard] for shard in found[elsewhere]} == {"en"}
    assert not elsewhere[~english].any()  # the only documents in their languages


def test_a_shard_of_many_is_enough_for_itself(data: str) -> None:
    reader = ShardReader(data, "train")
    rows = np.arange(reader.shards[0].rows)
    found, other = second_segments(reader, np.zeros_like(rows), rows, seed=0, sample_ids=rows)
    assert (found == 0).all()
    assert (other != rows).mean() > 0.9
