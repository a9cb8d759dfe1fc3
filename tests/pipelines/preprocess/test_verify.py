"""`verify` finds whatever is wrong with a data directory, and says where."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.completion import content_fingerprint, mark_success
from tokenfree.preprocess.dataset.manifest import DatasetSplit, ShardEntry
from tokenfree.preprocess.dataset.verify import verify


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of a good data directory, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def edit(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = directory / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    (directory / "_SUCCESS").unlink()
    mark_success(Storage.at(str(directory)), [])  # as who wrote the manifest so would


def first_shard(values: dict[str, Any]) -> dict[str, Any]:
    return values["splits"]["train"]["shards"][0]


def rewrite(directory: Path, change: Callable[[pa.Table], pa.Table], max_rows: int = 1000) -> str:
    """Change the rows of the first shard and make manifest, size, hash and fingerprint agree; the shard's name."""
    entry = first_shard(json.loads((directory / "manifest.json").read_text()))
    path = directory / entry["path"]
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = change(reader.read_all())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=max_rows)

    def agree(values: dict[str, Any]) -> None:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        first_shard(values).update(sha256=sha256, bytes=path.stat().st_size)
        splits = {
            name: DatasetSplit(tuple(ShardEntry(**shard) for shard in split["shards"]))
            for name, split in values["splits"].items()
        }
        values["fingerprint"] = content_fingerprint(splits, values["vocabulary_sha256"])

    edit(directory, agree)
    return entry["path"]


def replaced(table: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    index = table.schema.get_field_index(column)
    return table.set_column(
        index, table.schema.field(column), pa.array(values, table.schema.field(column).type)
    )


def test_a_good_directory_is_good(made: Path) -> None:
    assert verify(str(made)) == ()


def test_a_flipped_byte_is_found(copy: Path) -> None:
    shard = sorted((copy / "train").glob("*.arrow"))[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(JobError, match=f"train/{shard.name}: damaged, its SHA-256"):
        verify(str(copy))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda d: (d / "train" / "data-00000-of-00001.arrow").write_bytes(b""),
            "data-00000-of-00001.arrow: not in the",
        ),
        (lambda d: next((d / "validation").glob("*.arrow")).unlink(), "validation/data-.*missing"),
        (lambda d: next((d / "validation").glob("*.arrow")).write_bytes(b"ARROW"), "5 bytes, not the"),
        (lambda d: (d / "vocabulary" / "subwords.model").unlink(), "subwords.model: missing"),
        (
            lambda d: (d / "vocabulary" / "subwords.model").write_bytes(b"x"),
            "subwords.model: damaged, its SHA-256",
        ),
        (lambda d: edit(d, lambda m: m.update(fingerprint="00")), "fingerprint is not that"),
        (lambda d: edit(d, lambda m: m["counters"].update(pages=7)), "7 pages were read, but 54 documents"),
        (lambda d: edit(d, lambda m: m["counters"].update(windows=7)), "its counters 7"),
    ],
)
def test_what_does_not_agree_with_the_manifest_is_named(copy: Path, damage: Any, said: str) -> None:
    damage(copy)
    with pytest.raises(JobError, match=said):
        verify(str(copy))


def test_a_broken_row_is_named(copy: Path) -> None:
    path = rewrite(copy, lambda table: replaced(table, "codepoints", 2, [1, 2, 3]))
    with pytest.raises(JobError, match=rf"{path}: .*row 2\b"):
        verify(str(copy))


def test_a_row_of_another_language_is_named(copy: Path) -> None:
    path = rewrite(copy, lambda table: replaced(table, "language", 1, "sw"))
    with pytest.raises(JobError, match=f"{path}: row 1: language sw, not en"):
        verify(str(copy))


def test_rows_that_are_gone_are_missed(copy: Path) -> None:
    path = rewrite(copy, lambda table: table.slice(1))
    with pytest.raises(JobError, match=rf"{path}: \d+ rows, not the"):
        verify(str(copy))


def test_other_columns_are_refused(copy: Path) -> None:
    path = rewrite(copy, lambda table: table.drop_columns(["whitespace"]))
    with pytest.raises(JobError, match=f"{path}: its columns"):
        verify(str(copy))


def test_a_directory_without_manifest_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no manifest\.json there"):
        verify(str(tmp_path))
