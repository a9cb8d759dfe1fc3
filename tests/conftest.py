"""Fixtures for all tests: the folder of real data, and settings that keep tests quick on small machines."""

import functools
import gc
import itertools
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A shell starts what it puts in the background without Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup ignores it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadlines: a busy machine is no failure. The same examples each time: what CI saw can be seen again.
hypothesis.settings.register_profile("tokenfree", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tokenfree")
# For `make mutate`, which wants to know that a test fails, and not the smallest example with which it does.
WITHOUT_SHRINKING = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, phases=WITHOUT_SHRINKING)

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "tokenfree"
_NUMBERS = itertools.count()


def pytest_collection_finish() -> None:
    """Exclude the millions of objects of all imports from garbage collections, which would take half a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """Files are not flushed to the disk, as no test cuts the power: fsync takes milliseconds, thousands of times."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture
def limit_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Limit the size of the files that this process writes: the same failure as a disk that is full.

    Imports write no bytecode meanwhile: Python keeps a file that the limit has cut, and fails to read it later.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(autouse=True, scope="session")
def machine_measured_once() -> Iterator[None]:
    """Cache what each run looks up: the fastest matrix product, measured for 0.1 s, and the versions of packages."""
    with pytest.MonkeyPatch.context() as patched:
        for path, name in (("loop.meter", "peak"), ("runs.provenance", "packages")):
            # Tests that train have imported it.
            module = sys.modules.get(f"tokenfree.train.{path}")
            if module is not None:
                patched.setattr(module, name, functools.cache(getattr(module, name)))
        yield


@pytest.fixture(autouse=True)
def environment_as_before() -> Iterator[None]:
    """Commands set variables such as RAY_AUTH_MODE in this process, which later tests must not inherit."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real dumps and books, from TOKENFREE_TEST_DATA; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("TOKENFREE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(
            f"no real data in {folder}; set TOKENFREE_TEST_DATA to a folder with wiki-dumps/ and books/"
        )
    return folder


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """Where S3 is served on this machine."""
    server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    with pytest.MonkeyPatch.context() as patched:
        # Otherwise moto lists its folder of 200 services for each request, which is a quarter of its time.
        service = functools.cache(DomainDispatcherApplication.get_backend_for_host)
        patched.setattr(DomainDispatcherApplication, "get_backend_for_host", service)
        running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        yield "http://{}:{}".format(*running.get_host_and_port())
        running.stop()


@pytest.fixture
def bucket(s3_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An empty bucket, found by the usual environment variables; the cache is the test's own."""
    for name, value in (
        ("AWS_ENDPOINT_URL", s3_address),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("TOKENFREE_CACHE", str(tmp_path / "cache")),
    ):
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    name = f"bucket-{next(_NUMBERS)}"
    fsspec.filesystem("s3").mkdir(name)
    yield f"s3://{name}"
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def read_json_lines(path: Path) -> list[Any]:
    """Return the values of the complete lines of a file, or [] without a file."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
