"""A directory in a store takes the place of another: killed at any request, it goes on, and nobody reads half of it."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from tokenfree.preprocess.common.errors import TakenOverError, UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored import store_lock
from tokenfree.preprocess.common.stored.store_lock import LOCK, HeldStorage
from tokenfree.preprocess.dataset.manifest import MANIFEST
from tokenfree.preprocess.dataset.success_mark import SUCCESS
from tokenfree.preprocess.job.preprocess_job import JOB
from tokenfree.preprocess.job.reuse.store_swap import go_on, is_half_swapped, swap

OLD = {"train/a.arrow": b"a", "train/b.arrow": b"b", "_work/kept.json": b"old", MANIFEST: b"m1", SUCCESS: b"s1"}
NEW = {"train/a.arrow": b"A", "train/c.arrow": b"C", "_work/kept.json": b"new", MANIFEST: b"m2", SUCCESS: b"s2"}


class Killed(BaseException):
    """In the place of a signal."""


def contents(storage: Storage) -> dict[str, bytes]:
    return {name: storage.read_bytes(name) for name in storage.find() if not name.startswith(f"{LOCK}/")}


@pytest.fixture
def pair() -> Iterator[tuple[HeldStorage, Storage]]:
    """A finished directory in a store that is held, and the one that is to take its place."""
    url = f"memory://{uuid.uuid4().hex}"
    storage, new = Storage.at(url), Storage.at(url + ".next")
    with store_lock.hold(storage, UserError("held")) as number, store_lock.hold(new, UserError("held")):
        yield HeldStorage(storage.url, number), new


def fill(pair: tuple[Storage, Storage]) -> None:
    for storage, files in zip(pair, (OLD, NEW), strict=True):
        for name in contents(storage):
            storage.fs.rm(storage.path(name))
        for name, data in files.items():
            storage.fs.pipe_file(storage.path(name), data)


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """The requests that change the store; the one of this number kills."""
    fs, requests = fsspec.filesystem("memory"), list[str]()
    for name in ("cp_file", "rm"):
        real = getattr(fs, name)

        def request(path: str, *args: Any, real: Any = real, **named: Any) -> None:
            if len(requests) == moment:
                raise Killed
            requests.append(path)
            real(path, *args, **named)

        monkeypatch.setattr(fs, name, request)
    return requests


def test_killed_at_each_request_it_goes_on(pair: tuple[HeldStorage, Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, new = pair
    moment, ended = 0, False
    while not ended:
        fill(pair)
        with monkeypatch.context() as patched:
            kill_at(patched, moment)
            try:
                swap(storage, new)
                ended = True
            except Killed:
                pass
        found = contents(storage)
        if SUCCESS in found:
            assert found in (OLD, NEW)
        go_on(storage, new)
        if moment == 0:  # nothing was done, so the job beside it goes on
            assert (contents(storage), contents(new)) == (OLD, NEW)
            swap(storage, new)
        assert contents(storage) == NEW, moment
        assert new.names() == []
        moment += 1
    assert moment > 12


def test_killed_again_and_again_it_ends(pair: tuple[HeldStorage, Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, new = pair
    fill(pair)
    act, attempts = swap, 0
    while new.names():
        attempts += 1
        with monkeypatch.context() as patched, contextlib.suppress(Killed):
            kill_at(patched, attempts)  # each time a little later
            act(storage, new)
        act = go_on
    assert contents(storage) == NEW
    assert attempts > 6


def test_what_was_not_begun_is_left_alone(pair: tuple[HeldStorage, Storage]) -> None:
    storage, new = pair
    fill(pair)
    new.remove(SUCCESS)  # a job that is not done
    storage.remove(SUCCESS)
    before = contents(storage), contents(new)
    go_on(storage, new)
    assert (contents(storage), contents(new)) == before
    fill(pair)
    storage.remove(SUCCESS)
    storage.write_json(JOB, {})  # another job, in a directory that was emptied by hand
    before = contents(storage), contents(new)
    assert not is_half_swapped(storage, new)
    go_on(storage, new)
    assert (contents(storage), contents(new)) == before


def test_who_has_lost_the_lock_changes_nothing(pair: tuple[HeldStorage, Storage]) -> None:
    storage, new = pair
    fill(pair)
    storage.create(f"{LOCK}/00000009", b"{}")
    with pytest.raises(TakenOverError):
        swap(storage, new)
    assert (contents(storage), contents(new)) == (OLD, NEW)
