"""Columns of small Arrow files, wherever they lie and however large they are."""

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import read_columns, write_table


@pytest.mark.parametrize("place", ["disk", "store"])
def test_the_columns_asked_for_come_in_their_order(place: str, tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path) if place == "disk" else f"memory://{uuid.uuid4().hex}")
    numbers = np.arange(10_000)
    table = pa.table({"a": numbers, "b": [str(number) for number in numbers], "c": numbers * 2})
    write_table(storage, "some/table.arrow", table)
    assert read_columns(storage, "some/table.arrow", ["c", "b"]) == table.select(["c", "b"])
    with pytest.raises(FileNotFoundError):
        read_columns(storage, "some/other.arrow", ["a"])
