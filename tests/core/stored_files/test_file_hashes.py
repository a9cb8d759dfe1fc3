"""Hashes of files, and JSON with a hash of itself."""

from pathlib import Path

import pytest

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hash, hash_of, hashes_of, is_inside, read_sealed, write_sealed

VALUES = {"files": {"a.txt": "ab", "雁.txt": "cd"}, "inputs": [{"path": "x", "size": 7}]}


def test_a_sealed_file_comes_back_and_no_bit_of_it_can_change() -> None:
    storage = Storage.at("memory://sealed")
    write_sealed(storage, "seal.json", VALUES)
    assert read_sealed(storage, "seal.json") == VALUES
    path = storage.path("seal.json")
    whole = storage.read_bytes("seal.json")
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        storage.fs.pipe_file(path, bytes(damaged))
        assert read_sealed(storage, "seal.json") is None, bit
    for damaged in (b"", b"[]", b"{}", b"[" * 100_000, whole[:-1], whole + b"\n", b" " + whole):
        storage.fs.pipe_file(path, damaged)
        assert read_sealed(storage, "seal.json") is None
    storage.remove("seal.json")
    assert read_sealed(storage, "seal.json") is None


def test_a_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("a/b.txt", b"geese")
    (sha256,) = hashes_of(storage, ["a/b.txt", "absent", "a", "a/b.txt/c"]).values()
    check_hash(storage, "a/b.txt", sha256, source="manifest.json", action="copy")
    (tmp_path / "a/b.txt").write_text("goose")
    with pytest.raises(
        JobError, match=r"^a/b\.txt: damaged, its SHA-256 is not that of manifest\.json; copy$"
    ):
        check_hash(storage, "a/b.txt", sha256, source="manifest.json", action="copy")
    (tmp_path / "a/b.txt").unlink()
    with pytest.raises(JobError, match=r"^a/b\.txt: missing; copy$"):
        check_hash(storage, "a/b.txt", sha256, source="manifest.json", action="copy")
    assert hash_of(storage, "a/b.txt") is None


def test_what_lies_inside() -> None:
    assert all(map(is_inside, ("a", "a/b", "train/data-00000-of-00001.arrow", "..a/b..", "雁")))
    assert not any(
        map(is_inside, ("", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "C:a", "a\\b", "s3://a", "\0"))
    )
