"""Files of this machine: hashed, locked against threads and processes, and never locked by the dead."""

import errno
import hashlib
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, absolute_path, expand_home, hash_file, hash_stream, lock

HELD = UserError("a goose sits on it")


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("~", "/home/goose"),
        ("~/run", "/home/goose/run"),
        (Path("~/run"), "/home/goose/run"),
        ("~/A:0.7", "/home/goose/A:0.7"),
        ("~root/run", os.path.expanduser("~root/run")),
        ("./~", "./~"),
        ("a/~/b", "a/~/b"),
        ("s3://bucket/~/run", "s3://bucket/~/run"),
        (Path("run"), "run"),
    ],
)
def test_expand_home_at_the_beginning_only(
    path: AnyPath, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/goose")
    assert expand_home(path) == whole
    assert absolute_path(path) == (whole if "://" in whole else os.path.abspath(whole))


def test_expand_home_refuses_unknown_users() -> None:
    with pytest.raises(UserError, match="no home folder of this user is known"):
        expand_home("~no-such-goose/run")


def test_a_hash_does_not_depend_on_blocks(tmp_path: Path) -> None:
    data = b"geese" * 200_000
    (tmp_path / "geese").write_bytes(data)
    assert hash_file(tmp_path / "geese") == hashlib.sha256(data).hexdigest()
    assert hash_file(str(tmp_path / "geese"), "sha1") == hashlib.sha1(data).hexdigest()
    assert hash_stream(io.BytesIO(data)) == hashlib.sha256(data).hexdigest()


def test_a_lock_keeps_others_out_and_lets_them_in_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path):
        with pytest.raises(UserError, match="a goose"), lock(path, seconds=0, held=HELD):
            pass
        with pytest.raises(JobError, match="another process still holds"), lock(path, seconds=0):
            pass
    with lock(path, seconds=0, held=HELD):
        pass


def test_a_waiting_thread_comes_in_when_the_lock_is_free(tmp_path: Path) -> None:
    order: list[str] = []

    def wait() -> None:
        with lock(tmp_path / "lock"):
            order.append("second")

    thread = threading.Thread(target=wait)
    with lock(tmp_path / "lock"):
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_another_thread_may_let_go(tmp_path: Path) -> None:
    held = lock(tmp_path / "lock")
    held.__enter__()
    thread = threading.Thread(target=held.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with lock(tmp_path / "lock", seconds=0, held=HELD):
        pass


def test_a_killed_process_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from tokenfree.core.files import lock\n"
        "with lock(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="a goose"), lock(tmp_path / "lock", seconds=0, held=HELD):
            pass
        process.kill()
    with lock(tmp_path / "lock", seconds=0, held=HELD):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with (
        pytest.raises(JobError, match=r"cannot lock .*use a file system that has locks"),
        lock(tmp_path / "lock"),
    ):
        pass


def test_what_goes_wrong_while_the_lock_is_held_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no goose"), lock(tmp_path / "lock"):
        raise OSError(errno.ENOSYS, "no goose")
    with pytest.raises(IsADirectoryError), lock(tmp_path):
        pass
