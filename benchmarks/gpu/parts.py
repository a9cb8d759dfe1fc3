"""Run the parts of a program for GPUs, each in a process with a limit, and record every result as it comes.

Several parts compile at the same time. Only one at a time measures: it holds a lock on a file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

NEEDS_CUDA = "needs CUDA"
_CHILD = "--part"
_LAST_LINES = 1500  # characters of a failed part's output that its record keeps


class Part(NamedTuple):
    name: str
    options: dict[str, Any]
    gigabytes: float = 22  # device memory that must be free when it starts
    seconds: float = 200  # limit


Result = dict[str, Any]
Results = dict[str, Result]


class Running(NamedTuple):
    part: Part
    process: subprocess.Popen[bytes]
    log: Path
    until: float


class Runner:
    """Runs parts in the order given, as many at once as `gigabytes` of the device and the CPUs allow, until `until`.

    `until` is a time of `time.monotonic`. A part that fails, or is slower than its limit, is recorded and skipped.
    """

    def __init__(self, program: str, output: Path, *, until: float, gigabytes: float) -> None:
        self._command = [sys.executable, "-m", program]
        self._until, self._gigabytes = until, gigabytes
        self._at_once = max(1, min(4, (os.cpu_count() or 1) // 2))
        output.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="gpu-"))
        self._record = (output / "results.jsonl").open("a", encoding="utf-8")
        self.results: Results = {}

    def run(self, parts: list[Part]) -> None:
        waiting, running = list(parts), list[Running]()
        while waiting or running:
            now = time.monotonic()
            for one in list(running):
                if one.process.poll() is None and now < one.until:
                    continue
                running.remove(one)
                self._end(one)
            used = sum(one.part.gigabytes for one in running)
            while waiting and len(running) < self._at_once and used + waiting[0].gigabytes <= self._gigabytes:
                part = waiting.pop(0)
                if now + 10 > self._until:
                    self._note(part, {"skipped": "no time left"})
                    continue
                running.append(self._start(part))
                used += part.gigabytes
            if waiting and not running:
                self._note(waiting.pop(0), {"skipped": "needs more memory than the device has"})
            time.sleep(0.1)

    def _start(self, part: Part) -> Running:
        log = self._folder / f"{part.name}.log"
        job = json.dumps({"name": part.name, "options": part.options, "folder": str(self._folder)})
        threads = str(max(1, (os.cpu_count() or 1) // self._at_once))
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": threads}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*self._command, _CHILD, job],
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
        return Running(part, process, log, min(self._until, time.monotonic() + part.seconds))

    def _end(self, one: Running) -> None:
        status = one.process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()
        path = self._folder / f"{one.part.name}.json"
        if status == 0 and path.exists():
            return self._note(one.part, json.loads(path.read_text(encoding="utf-8")))
        reason = "slower than its limit" if status is None else f"exit status {status}"
        text = one.log.read_text(encoding="utf-8", errors="replace")
        self._note(one.part, {"failed": reason, "output": text[-_LAST_LINES:]})

    def _note(self, part: Part, result: Result) -> None:
        self.results[part.name] = result
        print(json.dumps({"part": part.name, **result}), file=self._record, flush=True)
        said = result.get("failed") or result.get("skipped") or result.get("line", "done")
        print(f"{part.name:34} {said}", flush=True)


class Child(NamedTuple):
    """The part that this process runs."""

    name: str
    options: dict[str, Any]
    folder: Path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other part measures."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def finish(self, result: Result) -> None:
        temporary = self.folder / f"{self.name}.tmp"
        temporary.write_text(json.dumps(result), encoding="utf-8")
        temporary.rename(self.folder / f"{self.name}.json")


def run_child(measure: Callable[[Child], Result]) -> bool:
    """Measure the part that the command line names, and return True; False in the process that starts the parts."""
    if _CHILD not in sys.argv:
        return False
    job = json.loads(sys.argv[sys.argv.index(_CHILD) + 1])
    child = Child(job["name"], job["options"], Path(job["folder"]))
    child.finish(measure(child))
    return True
