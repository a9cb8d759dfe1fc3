"""What a shard is built of is checked before it is committed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.features.columns import WindowBatch, iterate_windows
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.shards import build
from tokenfree.preprocess.shards.plan import DocumentSet, ShardTask, partitions
from tokenfree.preprocess.shards.sorted_runs import Partition, Partitioning, write_documents

CONFIG = PreprocessConfig()
NUM_DOCUMENTS = 40


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.at(str(tmp_path))


@pytest.fixture
def documents(storage: Storage) -> DocumentSet:
    found = [
        Document(f"books:{n}", "en", "", f"Goose {n} eats bread. It is quiet.") for n in range(NUM_DOCUMENTS)
    ]
    file, _, _ = write_documents(storage, "runs/r.arrow", found, 0.0)
    return partitions([file], Partitioning(0.0))[Partition("train", "en")]


def build_shard(storage: Storage, documents: DocumentSet) -> None:
    task = ShardTask("train/data.arrow", Partition("train", "en"), documents.ranges)
    build.build_shard(storage, task, documents, CONFIG, None, sidecar="shard.json", shard_fingerprint="")


def wrong_starts(column: str, first: int, value: int) -> Any:
    """`iterate_windows`, but in each row from number `first` on the first entry of a list column is wrong."""

    def iterate(*given: Any) -> Iterator[WindowBatch]:
        for batch in iterate_windows(*given):
            place = batch.rows.schema.names.index(column)
            lists = batch.rows[column]
            values = lists.values.to_numpy().copy()
            values[lists.offsets.to_numpy()[first:-1]] = value
            wrong = pa.ListArray.from_arrays(
                lists.offsets, pa.array(values, lists.type.value_type), type=lists.type
            )
            yield batch._replace(rows=batch.rows.set_column(place, batch.rows.schema.field(place), wrong))

    return iterate


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("word_starts", 65_535, "word_ends: a word lies behind the text"),
        ("sentence_starts", 3, "sentence_starts: the first is not 0"),
        ("codepoints", 0, "codepoints: is not that of text"),
    ],
)
@pytest.mark.parametrize("first", [0, NUM_DOCUMENTS - 5])
def test_a_shard_that_verify_would_refuse_is_not_committed(
    storage: Storage,
    documents: DocumentSet,
    column: str,
    value: int,
    told: str,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "iterate_windows", wrong_starts(column, first, value))
    with pytest.raises(
        JobError, match=rf"^train/data\.arrow: not written, .* books:\d+ is wrong: {told}; please report"
    ):
        build_shard(storage, documents)
    assert storage.names("train") == []
    assert storage.read_json("shard.json") is None


def test_the_wrong_document_is_named(
    storage: Storage, documents: DocumentSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "iterate_windows", wrong_starts("word_starts", NUM_DOCUMENTS - 1, 65_535))
    last = list(documents.merged(storage))[-1][1]
    with pytest.raises(JobError, match=rf"a window of document {last.id} is wrong"):
        build_shard(storage, documents)


def test_few_rows_of_many_are_checked(
    storage: Storage, documents: DocumentSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    check = build.check_windows
    monkeypatch.setattr(
        build, "check_windows", lambda batch, *rest: checked.append(batch.num_rows) or check(batch, *rest)
    )
    build_shard(storage, documents)
    assert checked == [build.CHECKED_ROWS]
