"""Files are committed whole or not at all, on every kind of file system."""

import errno
import hashlib
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from tokenfree.core import storage as storage_module
from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A directory on each kind of file system: files are renamed, or put in one go."""
    if request.param == "local":
        return Storage.at(str(tmp_path / "out"))
    return Storage.at(f"memory://storage-{request.param}-{tmp_path.name}")


def test_a_committed_file_has_its_size_and_hash_and_leaves_nothing_else(storage: Storage) -> None:
    new = storage.write_bytes("train/shard.arrow", b"geese")
    assert (new.size, new.sha256) == (5, hashlib.sha256(b"geese").hexdigest())
    assert storage.read_bytes("train/shard.arrow") == b"geese"
    assert storage.size("train/shard.arrow") == 5
    assert storage.size("train") is None
    assert storage.names("train") == ["shard.arrow"]
    assert storage.names("_tmp") == storage.names("nowhere") == []
    storage.write_bytes("train/shard.arrow", b"more geese")
    assert storage.read_bytes("train/shard.arrow") == b"more geese"


def test_an_error_while_writing_leaves_the_old_file(storage: Storage) -> None:
    storage.write_bytes("file", b"old")

    def write_half() -> None:
        with storage.new_file("file") as new:
            Path(new.path).write_bytes(b"ne")
            raise KeyError("killed")

    with pytest.raises(KeyError):
        write_half()
    assert storage.read_bytes("file") == b"old"
    assert storage.names("_tmp") == []


def test_ranges_of_several_files_come_in_order(storage: Storage) -> None:
    storage.write_bytes("a", b"0123456789")
    storage.write_bytes("b", b"abcdefghij")
    found = storage.read_ranges([("a", 2, 4), ("b", 0, 3), ("a", 9, 10)])
    assert [bytes(buffer) for buffer in found] == [b"23", b"abc", b"9"]


def test_json_is_the_same_bytes_for_the_same_values_and_none_when_damaged(storage: Storage) -> None:
    storage.write_json("a.json", {"b": 1, "a": "гуска"})
    storage.write_json("b.json", {"a": "гуска", "b": 1})
    assert storage.read_bytes("a.json") == storage.read_bytes("b.json")
    assert storage.read_json("a.json") == {"a": "гуска", "b": 1}
    storage.write_bytes("c.json", b'{"a": ')
    assert storage.read_json("c.json") is None
    assert storage.read_json("none.json") is None


def test_remove_takes_files_and_folders_and_what_is_not_there(storage: Storage) -> None:
    storage.write_bytes("folder/in/it", b"x")
    storage.remove("folder")
    storage.remove("folder")
    assert storage.names() in ([], ["_tmp"])


def test_a_directory_travels_to_other_processes(storage: Storage) -> None:
    storage.write_bytes("file", b"x")
    assert pickle.loads(pickle.dumps(storage)).read_bytes("file") == b"x"


def test_paths_are_absolute_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage.at("out").url == str(tmp_path / "out")
    assert Storage.at("out/").path("file") == str(tmp_path / "out" / "file")


def test_whoever_wrote_a_file_sees_it_while_others_look(bucket: str) -> None:
    storage = Storage.at(f"{bucket}/directory")

    def write_and_look(number: int) -> list[str]:
        written = [f"{number}-{time}" for time in range(12)]
        missing = []
        for name in written:
            storage.write_bytes(name, b"")
            missing += [] if name in storage.names() else [name]
        return missing

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write_and_look, range(8))) == [[]] * 8


def test_an_unknown_protocol_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="gopher://out: no file system"):
        Storage.at("gopher://out")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EISDIR, errno.EACCES])
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage_module.os, "replace", refuse)
    storage = Storage.at(str(tmp_path))
    with pytest.raises(UserError, match=f"cannot write here .{os.strerror(number)}") as caught:
        storage.write_bytes("file", b"x")
    assert "\n" not in str(caught.value)
    assert storage.names() == ["_tmp"]
    assert storage.names("_tmp") == []


def test_a_failed_put_is_tried_again_and_a_refused_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.at("memory://flaky")
    put, tries = fsspec.filesystem("memory").put_file, []
    monkeypatch.setattr("tokenfree.core.storage.time.sleep", lambda _: None)

    def flaky(source: str, target: str) -> None:
        tries.append(target)
        if len(tries) == 1:
            raise ConnectionResetError("slow down")
        put(source, target)

    monkeypatch.setattr(storage.fs, "put_file", flaky)
    storage.write_bytes("file", b"x")
    assert len(tries) == 2

    def refused(source: str, target: str) -> None:
        tries.append(target)
        raise PermissionError("no")

    monkeypatch.setattr(storage.fs, "put_file", refused)
    with pytest.raises(UserError, match="cannot write here"):
        storage.write_bytes("file", b"x")
    assert len(tries) == 3
