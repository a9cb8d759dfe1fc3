"""Try one mutant: run tests in a separate process in which one module is replaced by the mutant.

The process is forked from one that has already imported slow packages that are not under test. No file is
changed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pickle
import pkgutil
import resource
import signal
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

HEAVY = ("numpy", "torch", "torch.distributed", "torch.distributed.fsdp", "pyarrow", "pydantic", "hypothesis",
         "yaml", "sentencepiece", "fsspec", "safetensors.torch", "matplotlib", "rich.console",
         "tokenfree.preprocess")  # fmt: skip
MEMORY = 24 * 2**30  # bytes of address space; a wrong exponent should fail instead of filling the machine


class Outcome(NamedTuple):
    """The result of a trial."""

    verdict: str  # killed, survived, timeout, or unread if no test imports the module
    by: str  # the test that failed, or why there is none
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether a test noticed the mutant. A test that does not end counts too."""
        return self.verdict in ("killed", "timeout")


def warm_up() -> None:
    """Import what all trials need and no mutant can change."""
    for name in HEAVY:
        package = importlib.import_module(name)
        if name.startswith("tokenfree"):
            for module in pkgutil.walk_packages(package.__path__, f"{name}."):
                importlib.import_module(module.name)
    with contextlib.redirect_stdout(io.StringIO()):
        # Loads its plugins.
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tests/preprocess/text"])
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # pytest's garbage collection at its end took half of the time of a trial


def attempt(module: str, path: Path, source: str, rounds: Sequence[Sequence[str]], limit: float) -> Outcome:
    """Run tests until one fails, for at most `limit` seconds, with `source` as `module`.

    Each of the `rounds` is one call of pytest. Collecting tests takes time, and most mutants fail in the
    first round.

    Raises:
        RuntimeError: pytest could not run the tests.
    """
    start = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(writing, module, path, source, rounds)
    os.close(writing)
    signal.signal(signal.SIGALRM, _too_late)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit)
        with open(reading, "rb") as pipe:
            written = pipe.read()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        written = pickle.dumps(("timeout", f"no end after {limit:.0f} s"))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    verdict, by = pickle.loads(written) if written else ("killed", "the interpreter crashed")
    if verdict == "error":
        raise RuntimeError(f"{module}: {by}")
    return Outcome(verdict, by, round(time.monotonic() - start, 1))


def _too_late(*_: Any) -> None:
    raise TimeoutError


class _Mutated(SourceLoader, MetaPathFinder):
    """An importer that gives one module another text than that of its file."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self.module, self.path, self.source = module, str(path), source
        self.was_read = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.module else None

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: Any) -> bytes:
        if path != self.path:
            raise OSError(f"no compiled file of {path}")
        self.was_read = True
        return self.source.encode()


class _FirstFailure:
    """A pytest plugin that keeps the name of the first test that fails."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (import)"


def _in_child(writing: int, module: str, path: Path, source: str, rounds: Sequence[Sequence[str]]) -> None:
    """Run the tests in the forked process, write the result to `writing`, and exit."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    assert not any(name.startswith("tokenfree.train") for name in sys.modules)
    mutated, failure = _Mutated(module, path, source), _FirstFailure()
    sys.meta_path.insert(0, mutated)
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-profile=mutation"]
    status: int = pytest.ExitCode.OK
    for tests in rounds:
        if status == pytest.ExitCode.OK:
            status = pytest.main([*options, *tests], plugins=[failure])
    if failure.name:
        found = ("killed", failure.name)
    elif status == pytest.ExitCode.USAGE_ERROR and mutated.was_read:
        found = ("killed", "a conftest.py (import)")
    elif status != pytest.ExitCode.OK:
        found = ("error", f"pytest ended with {status!r}")
    else:
        found = ("survived", "") if mutated.was_read else ("unread", "no test imports it")
    with open(writing, "wb") as pipe:
        pickle.dump(found, pipe)
    os._exit(0)
