"""The lock of a store, on the S3 API: one holder at a time, even if one dies, waits or is slow."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.conftest import REPOSITORY
from tokenfree.core import locks as store_lock
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.locks import LOCK, check, hold
from tokenfree.core.storage import Storage

HELD = UserError("a goose sits on it")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.1)
    monkeypatch.setattr(store_lock, "GRACE", 0.1)


@pytest.fixture
def storage() -> Iterator[Storage]:
    """A directory in the memory of this process, which is a store too, for one who comes after another."""
    yield Storage("memory://lock/directory")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def s3(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A directory in a bucket.

    The server of the tests looks whether there is an object and writes it then; S3 does both at once, so it
    must too.
    """
    from moto.s3.responses import S3Response

    put, one = S3Response.put_object, threading.Lock()

    def put_alone(self: Any) -> Any:
        with one:
            return put(self)

    monkeypatch.setattr(S3Response, "put_object", put_alone)
    return Storage.at(f"{bucket}/directory")


def numbers(storage: Storage) -> list[str]:
    return storage.names(LOCK)


def leave(storage: Storage, number: int = 1, **content: Any) -> dict[str, Any]:
    """Write what a holder leaves behind that is killed; by default one of another machine."""
    left = {"owner": "x", "host": "another machine", "place": "there", "pid": 1, **content}
    storage.write_json(f"{LOCK}/{number:08d}", left)
    return left


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


def contend(storage: Storage, contenders: int) -> tuple[int, int]:
    """How many of those that come at once hold the lock, and how many at most at one time."""
    inside, most = 0, 0
    start, guard = threading.Barrier(contenders), threading.Lock()

    def try_once(_: int) -> bool:
        nonlocal inside, most
        start.wait()
        try:
            with hold(Storage(storage.url), HELD) as number:
                with guard:
                    inside += 1
                    most = max(most, inside)
                check(storage, number)
                time.sleep(0.1)
                with guard:
                    inside -= 1
        except UserError as error:
            if error is not HELD:
                raise
            return False
        return True

    with ThreadPoolExecutor(contenders) as pool:
        return sum(pool.map(try_once, range(contenders))), most


@pytest.mark.parametrize("before", ["never held", "given back", "its holder was killed"])
def test_hold_lets_one_of_many_contenders_in(before: str, s3: Storage) -> None:
    if before == "given back":
        with hold(s3, HELD):
            pass
    elif before == "its holder was killed":
        leave(s3, place=store_lock._place(), pid=ended_process())
    entries, most = contend(s3, 16)
    assert entries >= 1
    assert most == 1
    with hold(s3, HELD):  # and it is free again
        pass


def test_of_several_that_wait_for_a_silent_holder_one_takes_over(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.5)
    leave(s3)
    assert contend(s3, 8) == (1, 1)


def test_numbers_grow_and_one_object_stays(storage: Storage) -> None:
    seen = []
    for _ in range(3):
        with hold(storage, HELD) as number:
            assert numbers(storage) == [number]
            check(storage, number)
            with pytest.raises(UserError, match="a goose"), hold(storage, HELD):
                pass
            seen.append(number)
    assert seen == ["00000001", "00000003", "00000005"]
    assert numbers(storage) == ["00000006"]
    assert storage.read_json(f"{LOCK}/00000006")["state"] == "free"


def test_a_holder_that_beats_is_left_alone_however_long_it_holds(storage: Storage) -> None:
    with hold(storage, HELD) as number:
        time.sleep(store_lock.BEAT * store_lock.BEATS_MISSED * 2)
        for _ in range(2):
            with pytest.raises(UserError, match="a goose"), hold(storage, HELD):
                pass
        check(storage, number)


def test_a_silent_holder_is_taken_over_after_a_while_and_learns_of_it(storage: Storage) -> None:
    content = leave(storage)
    began = time.monotonic()
    with hold(storage, HELD) as number:
        silence = store_lock.BEAT * store_lock.BEATS_MISSED
        assert time.monotonic() - began >= silence + store_lock.GRACE
        assert (number, numbers(storage)) == ("00000002", ["00000002"])
        storage.write_json(f"{LOCK}/00000001", {**content, "beats": 1})  # it was only slow
        with pytest.raises(JobError, match=r"directory was taken over by another command on "):
            check(storage, "00000001")
        check(storage, number)
    assert numbers(storage) == ["00000003"]


def test_a_holder_that_was_taken_over_leaves_the_lock_to_the_other(storage: Storage) -> None:
    with hold(storage, HELD) as number:
        other = leave(storage, number=2)
        storage.remove(f"{LOCK}/{number}")  # as the other does
        with pytest.raises(JobError, match="taken over by another command on another machine"):
            check(storage, number)
        time.sleep(store_lock.BEAT * 2)
        assert numbers(storage) == ["00000002"]  # it beats no more
    assert numbers(storage) == ["00000002"]
    assert storage.read_json(f"{LOCK}/00000002") == other


def test_two_takers_do_not_begin_before_the_grace_is_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "GRACE", 0.5)
    leave(storage)

    def overtake() -> None:
        while not storage.size(f"{LOCK}/00000002"):
            time.sleep(0.01)
        leave(storage, number=3)

    thread = threading.Thread(target=overtake)
    thread.start()
    with pytest.raises(JobError, match="was taken over"), hold(storage, HELD):
        pass
    thread.join()


PROGRAM = """
import sys, time
from tokenfree.core.storage import Storage
from tokenfree.core.locks import hold
with hold(Storage(sys.argv[1]), RuntimeError("held")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_process_of_this_machine_that_was_killed_is_not_waited_for(
    is_reaped: bool, s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "BEATS_MISSED", 10_000)
    command = [sys.executable, "-c", PROGRAM, s3.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()
        process.stdout.read()
        if is_reaped:
            process.wait()
        with hold(s3, HELD):
            pass


@pytest.mark.parametrize("other", [{"place": "another boot"}, {"place": None}, {"pid": os.getpid()}])
def test_no_other_process_is_taken_for_the_holder_that_has_ended(
    other: dict[str, Any], storage: Storage
) -> None:
    content = {"place": store_lock._place(), "pid": ended_process()}
    assert store_lock._has_ended(content)
    assert not store_lock._has_ended({**content, **other})


@pytest.mark.parametrize("damage", [b"", b"[]", b"\xff{", b'{"state": 7}'])
def test_a_damaged_lock_becomes_free(damage: bytes, storage: Storage) -> None:
    storage.write_bytes(f"{LOCK}/00000001", damage)
    with hold(storage, HELD) as number:
        assert number == "00000002"


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What conditional writes do: each takes a function from the list, and calls the real one where none is left."""
    fs, changed = fsspec.filesystem("memory"), []
    pipe = fs.pipe_file

    def pipe_file(path: str, data: bytes, **options: Any) -> Any:
        return changed.pop(0)(pipe, path, data) if changed else pipe(path, data, **options)

    monkeypatch.setattr(fs, "pipe_file", pipe_file)
    yield changed
    assert changed == []


def fail(number: int) -> Any:
    def act(pipe: Any, path: str, data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    return act


def write_over(pipe: Any, path: str, data: bytes) -> None:
    pipe(path, data)


def lose_the_answer(pipe: Any, path: str, data: bytes) -> None:
    pipe(path, data)
    raise OSError(errno.EIO, "the connection broke")


@pytest.mark.parametrize("answers", [[write_over, write_over], [fail(errno.ENOSYS)]])
def test_a_store_without_conditional_writes_is_refused(
    answers: list[Any], storage: Storage, pipes: list[Any]
) -> None:
    pipes.extend(answers)
    with pytest.raises(UserError, match=r"directory: two commands could write here at once.*use S3, GCS"):
        hold(storage, HELD).__enter__()
    assert storage.find() == []


def test_file_systems_that_look_first_and_write_then_are_refused(tmp_path: Path) -> None:
    behind = Storage(f"dir::{tmp_path}")
    assert not behind.is_local
    with pytest.raises(UserError, match="two commands could write here at once"):
        hold(behind, HELD).__enter__()


def test_answers_that_are_lost_or_refused_in_other_words(storage: Storage, pipes: list[Any]) -> None:
    pipes.extend([lose_the_answer, fail(errno.EIO), write_over, fail(errno.EINVAL), lose_the_answer])
    with hold(storage, HELD) as number, pytest.raises(UserError, match="a goose"), hold(storage, HELD):
        pass
    assert number == "00000001"


def test_a_store_that_is_away_for_a_while_costs_nobody_the_lock(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = fsspec.filesystem("memory")
    put, find, away = fs.put_file, fs.ls, threading.Event()

    def ls(*arguments: Any, **options: Any) -> Any:
        while away.is_set():
            time.sleep(0.01)
        return find(*arguments, **options)

    def put_file(*arguments: Any, **options: Any) -> Any:
        if away.is_set():
            raise OSError(errno.EIO, "the connection broke")
        if waiter.is_alive():
            time.sleep(store_lock.BEAT / 2)  # the waiter looks first
        return put(*arguments, **options)

    monkeypatch.setattr(fs, "ls", ls)
    monkeypatch.setattr(fs, "put_file", put_file)
    result: list[BaseException] = []

    def wait() -> None:
        try:
            hold(storage, HELD).__enter__()
        except UserError as error:
            result.append(error)

    waiter = threading.Thread(target=wait)
    monkeypatch.setattr(store_lock, "BEAT", 0.5)
    with hold(storage, HELD) as number:
        waiter.start()
        time.sleep(0.2)
        away.set()
        time.sleep(store_lock.BEAT * (store_lock.BEATS_MISSED + 1))
        away.clear()
        waiter.join()
        assert result == [HELD]
        check(storage, number)
