"""Run the parts of a program for GPUs, each in a process with a limit, and record every result as it comes.

Several parts prepare (compile) at the same time. Only one at a time measures: it holds a lock on a file.
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


class Running(NamedTuple):
    part: Part
    process: subprocess.Popen[bytes]
    folder: Path
    until: float

    def is_over(self) -> bool:
        return self.process.poll() is not None or time.monotonic() > self.until

    def is_ready(self) -> bool:
        return self.is_over() or (self.folder / f"{self.part.name}.ready").exists()


class Runner:
    """Runs parts in the order given until `until`, a time of `time.monotonic`, or until they are done.

    As many parts as `gigabytes` of the device and the CPUs allow prepare at once; then each measures alone. A
    part that fails, or is slower than its limit, is recorded and skipped.
    """

    def __init__(
        self, program: str, output: Path, *, until: float, gigabytes: float, at_once: int = 6
    ) -> None:
        self._command = [sys.executable, "-m", program]
        self._until, self._gigabytes = until, gigabytes
        self._at_once = max(1, min(at_once, (os.cpu_count() or 1) // 2))
        output.mkdir(parents=True, exist_ok=True)
        self._temporary = tempfile.TemporaryDirectory(prefix="gpu-")
        self._folder, self._results_file = Path(self._temporary.name), output / "results.jsonl"
        self.results: dict[str, Result] = {}

    def run(self, parts: list[Part]) -> None:
        waiting = list(parts)
        while waiting:
            together = [waiting.pop(0)]
            while waiting and len(together) < self._at_once:
                if sum(part.gigabytes for part in (*together, waiting[0])) > self._gigabytes:
                    break
                together.append(waiting.pop(0))
            if time.monotonic() + 10 > self._until:
                for part in together:
                    self._note(part, {"skipped": "no time left"})
                continue
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                running = [self._start(part) for part in together]
                while not all(one.is_ready() for one in running):
                    time.sleep(0.1)
            while running:
                for one in [one for one in running if one.is_over()]:
                    running.remove(one)
                    self._end(one)
                time.sleep(0.1)

    def _start(self, part: Part) -> Running:
        job = json.dumps({"name": part.name, "options": part.options, "folder": str(self._folder)})
        threads = str(max(1, (os.cpu_count() or 1) // self._at_once))
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": threads}
        with (self._folder / f"{part.name}.log").open("wb") as stream:
            process = subprocess.Popen(
                [*self._command, _CHILD, job],
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
        return Running(part, process, self._folder, min(self._until, time.monotonic() + part.seconds))

    def _end(self, one: Running) -> None:
        status = one.process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()
        path = self._folder / f"{one.part.name}.json"
        if status == 0 and path.exists():
            return self._note(one.part, json.loads(path.read_text(encoding="utf-8")))
        reason = "slower than its limit" if status is None else f"exit status {status}"
        text = (self._folder / f"{one.part.name}.log").read_text(encoding="utf-8", errors="replace")
        self._note(one.part, {"failed": reason, "output": text[-_LAST_LINES:]})

    def _note(self, part: Part, result: Result) -> None:
        self.results[part.name] = result
        with self._results_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part.name, **result}) + "\n")
        said = result.get("failed") or result.get("skipped") or result.get("line", "done")
        print(f"{part.name:44} {said}", flush=True)


class Child(NamedTuple):
    """The part that this process runs."""

    name: str
    options: dict[str, Any]
    folder: Path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until the parts that started with this one are prepared too, and no other one measures."""
        (self.folder / f"{self.name}.ready").touch()
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
