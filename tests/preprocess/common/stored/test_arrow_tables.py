"""Columns of small Arrow files, wherever they lie and however large they are."""

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenfree.core import stored_files as arrow_tables
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import read_columns, write_table


@pytest.mark.parametrize("place", ["disk", "store", "large in a store"])
def test_the_columns_asked_for_come_in_their_order(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.at(str(tmp_path) if place == "disk" else f"memory://{uuid.uuid4().hex}")
    read: list[str] = []
    read_bytes = Storage.read_bytes
    monkeypatch.setattr(Storage, "read_bytes", lambda storage, name: read.append(name) or read_bytes(storage, name))
    if place == "large in a store":
        monkeypatch.setattr(arrow_tables, "SMALL_BYTES", 0)
    numbers = np.arange(10_000)
    table = pa.table({"a": numbers, "b": [str(number) for number in numbers], "c": numbers * 2})
    write_table(storage, "some/table.arrow", table)
    assert read_columns(storage, "some/table.arrow", ["c", "b"]) == table.select(["c", "b"])
    assert len(read) == (place == "store")
    with pytest.raises(FileNotFoundError):
        read_columns(storage, "some/other.arrow", ["a"])
