"""Runs and their merge: sorted, without duplicates, the same however documents were cut into runs."""

import itertools
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.storage import Storage
from tokenfree.preprocess.records import Document, document_key
from tokenfree.preprocess.shards import merge as merge_module
from tokenfree.preprocess.shards import sorted_runs as runs_module
from tokenfree.preprocess.shards.merge import Merge, contains_document
from tokenfree.preprocess.shards.sorted_runs import (
    KEY_SPACE,
    SortedRun,
    SortedRunBatch,
    SortedRunFile,
    commit_run,
    find_run,
    key_position,
    read_batch,
    write_documents,
)


def documents(texts: Iterable[str]) -> list[Document]:
    return [Document(f"books:{number}", "en", "", text) for number, text in enumerate(texts)]


def write(
    storage: Storage, groups: list[list[Document]], validation_fraction: float = 0.0
) -> list[SortedRunBatch]:
    files = [
        write_documents(storage, "runs", str(n), group, validation_fraction) for n, group in enumerate(groups)
    ]
    return [batch for file in files for batch in file.batches]


@given(st.lists(st.text("ab", max_size=3), max_size=40), st.integers(1, 5), st.integers(0, 2**32))
def test_any_cut_gives_the_same_documents(texts: list[str], num_runs: int, seed: int) -> None:
    found = documents(texts)
    random.Random(seed).shuffle(found)
    storage = Storage.at(f"memory://merge-{seed}-{num_runs}-{len(texts)}")
    batches = write(storage, [found[start::num_runs] for start in range(num_runs)])
    merge = Merge(storage, batches)
    merged = list(merge)
    keys = [key for key, _ in merged]
    assert keys == sorted({document_key(text) for text in texts})
    assert merge.duplicates == len(texts) - len(set(texts))
    for _, document in merged:
        assert document.id == min(d.id for d in found if d.text == document.text)
    storage.remove("")


@pytest.mark.parametrize("first", [0, 1])
def test_of_equal_texts_the_first_language_stays_before_the_first_id(first: int, tmp_path: Path) -> None:
    equal = [Document("books:2", "de", "", "same"), Document("books:1", "en", "", "same")]
    storage = Storage.at(str(tmp_path))
    merge = Merge(storage, write(storage, [[equal[first]], [equal[1 - first]]]))
    assert [document.id for _, document in merge] == ["books:2"]
    assert merge.duplicates == 1


def test_ranges_partition_the_documents_and_pieces_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage.at(str(tmp_path))
    monkeypatch.setattr(runs_module, "BATCH_CHARACTERS", 50)
    found = documents(f"text {number % 80}" for number in range(100))
    batches = write(storage, [found[:30], found[30:50], found[50:]])
    assert len(batches) > 6
    whole = list(Merge(storage, batches))
    bounds = [0, 3, KEY_SPACE // 3, KEY_SPACE // 2, KEY_SPACE]
    ranges = list(itertools.pairwise(bounds))
    parts = [Merge(storage, batches, [part]) for part in ranges]
    assert [row for part in parts for row in part] == whole
    assert sum(part.duplicates for part in parts) == 20
    together, some = Merge(storage, batches, ranges), Merge(storage, batches, ranges[1:3])
    assert list(together) == whole
    assert together.duplicates == 20
    assert list(some) == [row for part in parts[1:3] for row in part]
    monkeypatch.setattr(merge_module, "PIECE_CHARACTERS", 40)
    monkeypatch.setattr(merge_module, "FETCHED_BATCHES", 2)
    assert list(Merge(storage, batches)) == whole


def test_one_position_alone_or_all_but_one(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    batches = write(storage, [documents(["duck", "goose", "goose", "swan"])])
    goose = key_position(document_key("goose"))
    alone = Merge(storage, batches, [(goose, goose + 1)])
    others = Merge(storage, batches, [(0, goose), (goose + 1, KEY_SPACE)])
    assert [document.text for _, document in alone] == ["goose"]
    assert sorted(document.text for _, document in others) == ["duck", "swan"]
    assert (alone.duplicates, others.duplicates) == (1, 0)


def test_whether_ranges_hold_a_document(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    batches = write(storage, [documents(["duck", "goose", "swan"])])
    first, middle, last = sorted(key_position(document_key(text)) for text in ("duck", "goose", "swan"))
    assert contains_document(storage, batches, [(middle, middle + 1)])
    assert not contains_document(storage, batches, [(first + 1, middle), (middle + 1, last)])
    assert not contains_document(storage, batches, [(middle + 1, last)])
    assert contains_document(storage, batches, [(middle + 1, last), (last, KEY_SPACE)])
    assert not contains_document(storage, batches, [])


def test_a_run_is_sorted_in_batches_of_one_split_and_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "BATCH_CHARACTERS", 100)
    storage = Storage.at(str(tmp_path))
    mixed = [Document(f"books:{n}", ("en", "sw")[n % 2], "t", f"text number {n}") for n in range(60)]
    file = write_documents(storage, "runs", "r", mixed, 0.3)
    seen = 0
    for batch, (buffer,) in (
        (batch, storage.read_ranges([(batch.run, batch.start, batch.end)])) for batch in file.batches
    ):
        rows = read_batch(buffer)
        assert rows.num_rows == batch.rows
        assert set(rows["language"].to_pylist()) == {batch.language}
        keys = [key.hex() for key in rows["key"].to_pylist()]
        assert keys == sorted(keys)
        assert (keys[0], keys[-1]) == (batch.first, batch.last)
        seen += batch.rows
    assert seen == 60
    order = [(batch.drawn_split, batch.language, batch.first) for batch in file.batches]
    assert order == sorted(order)
    assert {drawn for drawn, _, _ in order} == {"train", "validation"}


def test_a_run_is_found_only_whole_and_for_the_same_job(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    assert find_run(storage, "runs", "r", "job") is None
    run = SortedRun(
        "r", "job", 10, {"pages": 1}, 0, write_documents(storage, "runs", "r", documents(["goose"]), 0.0)
    )
    commit_run(storage, "runs", run)
    assert find_run(storage, "runs", "r", "job") == run
    assert find_run(storage, "runs", "r", "another job") is None
    written = (tmp_path / "runs" / "r.arrow").read_bytes()
    (tmp_path / "runs" / "r.arrow").write_bytes(written.replace(b"goose", b"geese"))
    assert find_run(storage, "runs", "r", "job") is None
    assert find_run(storage, "runs", "r", "job", read=False) == run  # it is there, and of its size
    (tmp_path / "runs" / "r.arrow").write_bytes(b"")
    for read in (True, False):
        assert find_run(storage, "runs", "r", "job", read=read) is None
    empty = SortedRun("e", "job", 10, {"pages": 1}, 0, SortedRunFile())
    commit_run(storage, "runs", empty)
    assert find_run(storage, "runs", "e", "job") == empty
    sketched = SortedRun(
        "s", "job", 10, {"pages": 1}, 0, SortedRunFile(), beside={".sketches.arrow": "0" * 64}
    )
    commit_run(storage, "runs", sketched)
    assert find_run(storage, "runs", "s", "job", read=False) is None
    assert write_documents(storage, "runs", "e", [], 0.0) == SortedRunFile()
