"""Runs and their merge: sorted, without duplicates, the same however documents were cut into runs."""

import itertools
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of
from tokenfree.preprocess.documents.near_duplicates import as_keys, key_halves
from tokenfree.preprocess.records import Document, document_key
from tokenfree.preprocess.shards import merge as merge_module
from tokenfree.preprocess.shards import sorted_runs as runs_module
from tokenfree.preprocess.shards.merge import DamagedFileError, FilePart, Merge, occupied, read_indexes
from tokenfree.preprocess.shards.sorted_runs import (
    KEY_SPACE,
    SortedFile,
    SortedRun,
    commit_run,
    find_run,
    key_position,
    read_batch,
    validation_draw,
    write_documents,
)


def documents(texts: Iterable[str]) -> list[Document]:
    return [Document(f"books:{number}", "en", "", text) for number, text in enumerate(texts)]


def write(storage: Storage, groups: list[list[Document]]) -> list[FilePart]:
    files = [write_documents(storage, f"runs/{n}.arrow", group, 0.0)[0] for n, group in enumerate(groups)]
    return [FilePart(file.path, part) for file in files for part in file.parts]


@given(st.lists(st.text("ab", max_size=3), max_size=40), st.integers(1, 5), st.integers(0, 2**32))
def test_any_cut_gives_the_same_documents(texts: list[str], num_runs: int, seed: int) -> None:
    found = documents(texts)
    random.Random(seed).shuffle(found)
    storage = Storage.at(f"memory://merge-{seed}-{num_runs}-{len(texts)}")
    sources = write(storage, [found[start::num_runs] for start in range(num_runs)])
    merge = Merge(storage, sources)
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
    sources = write(storage, [found[:30], found[30:50], found[50:]])
    assert len(read_indexes(storage, tuple(sources))[0]) > 6
    whole = list(Merge(storage, sources))
    bounds = [0, 3, KEY_SPACE // 3, KEY_SPACE // 2, KEY_SPACE]
    ranges = list(itertools.pairwise(bounds))
    parts = [Merge(storage, sources, [part]) for part in ranges]
    assert [row for part in parts for row in part] == whole
    assert sum(part.duplicates for part in parts) == 20
    together, some = Merge(storage, sources, ranges), Merge(storage, sources, ranges[1:3])
    assert list(together) == whole
    assert together.duplicates == 20
    assert list(some) == [row for part in parts[1:3] for row in part]
    for size in (40, 2_000, 10_000):
        monkeypatch.setattr(merge_module, "PIECE_BYTES", size)
        assert list(Merge(storage, sources)) == whole
        assert list(Merge(storage, sources, ranges)) == whole


def test_each_batch_is_read_once_and_neighbours_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage.at(str(tmp_path))
    monkeypatch.setattr(runs_module, "BATCH_CHARACTERS", 100)
    sources = write(storage, [documents(f"text {run} {number}" for number in range(200)) for run in range(3)])
    index, _ = read_indexes(storage, tuple(sources))
    monkeypatch.setattr(merge_module, "PIECE_BYTES", int((index["end"] - index["start"]).sum()) // 4)
    pieces = list(Merge(storage, sources).pieces(0, KEY_SPACE))
    assert len(pieces) == 4
    read = [batch["start"] for _, requests in pieces for one in requests for batch in one.batches]
    assert len(read) == len(index)
    assert all(len(requests) == 3 for _, requests in pieces)


@pytest.mark.parametrize("place", [200, -20])
def test_damaged_bytes_are_not_read(place: int, tmp_path: Path) -> None:
    """Of a batch, and of the index."""
    storage = Storage.at(str(tmp_path))
    sources = write(storage, [documents(["duck", "goose"])])
    path = tmp_path / sources[0].path
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"runs/0\.arrow: damaged; run the job again"):
        list(Merge(storage, sources))


def test_one_position_alone_or_all_but_one(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    sources = write(storage, [documents(["duck", "goose", "goose", "swan"])])
    goose = key_position(document_key("goose"))
    alone = Merge(storage, sources, [(goose, goose + 1)])
    others = Merge(storage, sources, [(0, goose), (goose + 1, KEY_SPACE)])
    assert [document.text for _, document in alone] == ["goose"]
    assert sorted(document.text for _, document in others) == ["duck", "swan"]
    assert (alone.duplicates, others.duplicates) == (1, 0)


def test_which_ranges_have_a_document(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    sources = write(storage, [documents(["duck", "goose", "swan"])])
    keys = sorted(map(document_key, ("duck", "goose", "swan")))
    first, middle, last = map(key_position, keys)
    ranges = [(0, first), (first, first + 1), (first + 1, middle), (middle, middle + 1), (middle + 1, last)]
    assert occupied(storage, sources, ranges).tolist() == [False, True, False, True, False]
    assert occupied(storage, sources, [(first + 1, last), (last, KEY_SPACE)]).tolist() == [True, True]
    dropped = as_keys(b"".join(keys[:2]))
    assert occupied(storage, sources, ranges, dropped).tolist() == [False] * 5
    assert occupied(storage, sources, [(0, KEY_SPACE)], dropped).tolist() == [True]
    assert occupied(storage, [], ranges).tolist() == [False] * 5


@pytest.mark.parametrize("seed", range(3))
def test_occupied_ranges_are_those_of_the_keys(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "BATCH_CHARACTERS", 60)
    storage = Storage.at(str(tmp_path))
    texts = [f"{seed} {number}" for number in range(90)]
    sources = write(storage, [documents(texts[start::4]) for start in range(4)])
    bounds = [KEY_SPACE * number // 500 for number in range(501)]
    positions = [key_position(document_key(text)) for text in texts]
    counts = [
        sum(low <= position < high for position in positions) for low, high in itertools.pairwise(bounds)
    ]
    assert occupied(storage, sources, list(itertools.pairwise(bounds))).tolist() == [bool(n) for n in counts]


def test_a_file_is_sorted_in_batches_of_one_split_and_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "BATCH_CHARACTERS", 100)
    storage = Storage.at(str(tmp_path))
    mixed = [Document(f"books:{n}", ("en", "sw")[n % 2], "t", f"text number {n}") for n in range(60)]
    file, lowest, highest = write_documents(storage, "runs/r.arrow", mixed, 0.3)
    assert file.sha256 == hash_of(storage, file.path)
    seen = batches = 0
    for part in file.parts:
        index, _ = read_indexes(storage, (FilePart(file.path, part),))
        keys: list[bytes] = []
        for batch in index:
            (buffer,) = storage.read_ranges([(file.path, int(batch["start"]), int(batch["end"]))])
            rows = read_batch(buffer)
            assert set(rows["language"].to_pylist()) == {part.language}
            assert batch["first"].tolist() == key_halves(rows["key"])[0].tolist()
            assert batch["last"].tolist() == key_halves(rows["key"])[-1].tolist()
            keys += rows["key"].to_pylist()
        assert keys == sorted(keys)
        assert (keys[0].hex(), keys[-1].hex(), len(keys)) == (part.first, part.last, part.documents)
        seen += len(keys)
        batches += len(index)
    assert seen == 60
    assert batches > len(file.parts)
    order = [(part.drawn_split, part.language) for part in file.parts]
    assert order == [(drawn, language) for drawn in ("train", "validation") for language in ("en", "sw")]
    draws = sorted((document_key(document.text) for document in mixed), key=validation_draw)
    assert (lowest, highest) == (draws[0].hex(), draws[-1].hex())


def test_a_run_is_found_only_whole_and_for_the_same_job(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    assert find_run(storage, "runs", "r", "job") is None
    written = write_documents(storage, "runs/r.arrow", documents(["goose"]), 0.0)
    run = SortedRun("r", "job", 10, {"pages": 1}, 0, *written)
    commit_run(storage, "runs", run)
    assert find_run(storage, "runs", "r", "job") == run
    assert find_run(storage, "runs", "r", "another job") is None
    data = (tmp_path / "runs" / "r.arrow").read_bytes()
    (tmp_path / "runs" / "r.arrow").write_bytes(data.replace(b"goose", b"geese"))
    assert find_run(storage, "runs", "r", "job") is None
    assert find_run(storage, "runs", "r", "job", read=False) == run  # it is there, and of its size
    (tmp_path / "runs" / "r.arrow").write_bytes(b"")
    for read in (True, False):
        assert find_run(storage, "runs", "r", "job", read=read) is None
    assert find_run(storage, "runs", "r", "job", read=False, merged=True) == run
    empty = SortedRun("e", "job", 10, {"pages": 1}, 0, SortedFile())
    commit_run(storage, "runs", empty)
    assert find_run(storage, "runs", "e", "job") == empty
    sketched = SortedRun("s", "job", 10, {"pages": 1}, 0, SortedFile(), beside={".sketches.arrow": "0" * 64})
    commit_run(storage, "runs", sketched)
    assert find_run(storage, "runs", "s", "job", read=False) is None
    assert write_documents(storage, "runs/e.arrow", [], 0.0) == (SortedFile(), "", "")
