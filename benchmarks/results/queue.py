"""Work through the queue, with one line of results per run. Everything resumes after a kill.

A run that has a line is skipped. Lock files let several commands share a folder. CPU seconds are those of all
processes of a run, summed over its attempts. They are read every two seconds and kept in a file, so that
killed attempts count.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import fnmatch
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import data, scores
from benchmarks.results.rows import BASELINE, FINETUNE, LINEAR, PRETRAIN, PROBE, QUEUE, Row, main_score

Line = dict[str, Any]
Lines = dict[str, Line]  # by run
POLL_SECONDS = 2.0
EVALUATED_WINDOWS = "1000"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A run ended with an error."""


class NotReady(Exception):
    """A run needs another one that has not ended."""


@dataclass(frozen=True)
class Run:
    """A row, a seed, and the learning rate if the run is part of a sweep."""

    row: Row
    seed: int
    rate: str | None = None

    def name(self, lines: Lines) -> str:
        """Return the key of its line.

        Raises:
            NotReady: The sweep that decides on its rate is not complete.
        """
        rate = self.rate or (choose_rate(self.row, lines).rate if self.row.rates else None)
        return f"{self.row.name}{'' if rate is None else f'@{rate}'}-{self.seed}"


def runs() -> list[Run]:
    """Return the queue.

    In each stage, seed 0 of all rows comes first, and sweeps precede rows that need their rate.
    """
    found = []
    for stage in QUEUE:
        for seed in range(3):
            for row in stage:
                if seed == 0 and row.name == row.leader:
                    found += [Run(row, 0, rate) for rate in row.rates]
                elif seed < row.seeds:
                    found.append(Run(row, seed))
                if seed == 0:
                    found += [Run(row, 0, rate) for rate in row.further_rates]
    return found


class RateChoice(NamedTuple):
    """The learning rate of a row.

    Attributes:
        rate: Rate with the best development score.
        row: Name of the row that ran at several rates.
        tried: Its rates, the lowest first.
    """

    rate: str
    row: str
    tried: tuple[str, ...]

    @property
    def is_at_end(self) -> bool:
        """Whether a rate beyond those tried may be better."""
        return self.rate in (self.tried[0], self.tried[-1])


def choose_rate(row: Row, lines: Mapping[str, Line]) -> RateChoice:
    """Return the rate with the best development score with seed 0, among those at which the row ran.

    A row that ran at one rate at most takes the rate of its family's leader.

    Raises:
        NotReady: A run of the leader's sweep has no line.
    """
    name, scores = row.name, _dev_scores(row.name, lines)
    if name == row.leader or len(scores) < 2:
        name, scores = row.leader, _dev_scores(row.leader, lines)
        missing = [rate for rate in row.rates if rate not in scores]
        if missing:
            raise NotReady(f"the sweep of {row.leader} has no run at {', '.join(missing)}")
    # The lowest of equal rates.
    return RateChoice(max(scores, key=lambda rate: scores[rate]), name, tuple(scores))


def _dev_scores(name: str, lines: Mapping[str, Line]) -> dict[str, float]:
    """Return the development score with seed 0 of a row at each rate, the lowest rate first."""
    of_row = [line for line in lines.values() if line["row"] == name and line["seed"] == 0 and "rate" in line]
    of_row.sort(key=lambda line: float(line["rate"]))
    return {line["rate"]: main_score(line, "dev") for line in of_row}


def read_lines(file: Path) -> Lines:
    """Return the complete lines of a file by run."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return {line["run"]: line for line in map(json.loads, text[: text.rfind("\n") + 1].splitlines())}


def append_line(file: Path, line: Line) -> None:
    """Append a line. An incomplete last line is removed."""
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        opened.seek(0)
        opened.truncate(opened.read().rfind(b"\n") + 1)
        opened.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def in_lane(queue: Sequence[Run], lane: int, lanes: int) -> list[Run]:
    """Return the queue with every `lanes`-th run first, followed by the others, so that no lane idles."""
    own = list(queue[lane - 1 :: lanes])
    return own + [run for run in queue if run not in own]


@dataclass(frozen=True)
class Folders:
    """Where a queue works.

    Attributes:
        inputs: Folder of the data sets as published.
        work: Folder of data, runs and logs.
        lines: File of results.
    """

    inputs: Path
    work: Path
    lines: Path

    def run(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.work / "runs" / name


def work(queue: Sequence[Run], folders: Folders, pattern: str = "*") -> list[str]:
    """Do all runs that have no line, and return the names of those that failed, which are not tried twice."""
    failed: set[str] = set()
    for folder in ("locks", "runs", "logs"):
        (folders.work / folder).mkdir(parents=True, exist_ok=True)
    while True:
        held = done = False
        for run in queue:
            lines = read_lines(folders.lines)
            try:
                name = run.name(lines)
                if name in lines or name in failed or not fnmatch.fnmatchcase(name, pattern):
                    continue
                with _lock(folders.work / "locks" / name) as free:
                    held = held or not free
                    if not free or name in read_lines(folders.lines):
                        continue
                    line = Worker(run, name, folders, lines).line()
                append_line(folders.lines, line)
                print(f"{name}: {shown(line)}", flush=True)
                done = True
                break  # start over, because waiting runs may be ready now
            except NotReady:
                continue
            except Failed as error:
                failed.add(name)
                print(f"{name}: failed: {error}", flush=True)
        if not done and not held:
            return sorted(failed)
        if not done:
            time.sleep(20)  # another lane works on what the rest needs


def shown(line: Line) -> str:
    """Return the result of a run in a few words."""
    spent = (
        f"{line['cpu_seconds']:.0f} CPU seconds"
        if "cpu_seconds" in line
        else f"{line['seconds']:.0f} s on a GPU"
    )
    if "evaluation" in line:
        found = line["evaluation"]
        said = f"loss {found['validation_masked_only_loss']:.3f}, margin {found.get('margin') or 0:.2f}, "
        return f"{said}context probe {found.get('probe') or 0:.2f}; {spent}"
    said = ", ".join(f"{part} {main_score(line, part):.3f}" for part in ("dev", "test"))
    return f"{said}; {spent}"


class Worker:
    """Does one run.

    Args:
        run: Row, seed and rate.
        name: Key of its line.
        folders: Where to work.
        lines: Lines of finished runs, from which a run can start.
    """

    def __init__(self, run: Run, name: str, folders: Folders, lines: Lines) -> None:
        self.run, self.row, self.name, self.folders, self.lines = run, run.row, name, folders, lines
        self.cpu = CpuSeconds(folders.work / "logs" / f"{name}.cpu")

    def line(self) -> Line:
        """Do the run and return its line.

        Raises:
            Failed: A command failed.
            NotReady: The run that it starts from has not ended.
        """
        found = {
            PRETRAIN: self._pretrain,
            FINETUNE: self._finetune,
            PROBE: self._simple,
            BASELINE: self._simple,
            LINEAR: self._simple,
        }
        before = None if self.row.begins_with is None else f"{self.row.begins_with}-{self.run.seed}"
        if before is not None and before not in self.lines:
            raise NotReady(f"{before} has not ended")
        self.before = None if before is None else self.folders.run(before)
        if self.before is not None and not self.before.exists():
            raise Failed(f"{self.before} is gone. Remove the line of {before} to make it again.")
        if self.row.set is not None:
            data.make_set(self.folders.inputs, self.folders.work / "data", self.row.set)
        result = found[self.row.kind]()
        rate = self.name.rpartition("@")[2].rpartition("-")[0] if "@" in self.name else None
        head = {
            "run": self.name,
            "row": self.row.name,
            "seed": self.run.seed,
            **({"rate": rate} if rate else {}),
        }
        return {
            **head,
            **_rounded(result),
            "cpu_seconds": round(self.cpu.total(), 1),
            "revision": _revision(),
        }

    def _pretrain(self) -> Line:
        corpus = self.folders.work / "corpora" / self.row.data
        with _lock(corpus.with_suffix(".lock"), wait=True):
            if not (corpus / "_SUCCESS").exists():
                arguments = data.corpus_arguments(self.folders.inputs, corpus.parent, self.row.data)
                self._call(["tokenfree", *arguments], CpuSeconds(corpus.with_suffix(".cpu")))
        run = self.folders.run(self.name)
        command = ["tokenfree", "pretrain", self.row.recipe, "--data", str(corpus), "--output", str(run)]
        command += self._options()
        self._call(command)
        output = self.folders.work / "logs" / f"{self.name}.json"
        evaluate = ["evaluate", str(run), "--data", str(corpus), "--windows", EVALUATED_WINDOWS, "--json"]
        self._call(["tokenfree", *evaluate], output=output)
        evaluation = json.loads(output.read_text(encoding="utf-8"))
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        characters = sum(step.get("characters", 0) for step in steps)
        kept = {key: value for key, value in evaluation.items() if isinstance(value, int | float)}
        return {"command": self._shown(command), "characters": characters, "evaluation": kept}

    def _finetune(self) -> Line:
        run, name = self.folders.run(self.name), self.row.set
        folder = self.folders.work / "data"
        command = ["tokenfree", "finetune", self.row.recipe]
        if name is not None:
            for part in data.PARTS:
                command += [f"--{part}", str(data.path(folder, name, part))]
        if self.before is not None:
            command += ["--init-from", str(self.before)]
        command += ["--output", str(run), *self._options()]
        self._call(command)
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
        made = {part: result[part] for part in ("dev", "test")}
        if name is not None:
            train = data.examples(folder, name, "train")
            made = {part: _scores(train, data.examples(folder, name, part), run, part) for part in made}
        return {
            "command": self._shown(command),
            "best_step": result["best_step"],
            "scores": {self.row.label: made},
        }

    def _simple(self) -> Line:
        output = self.folders.work / "logs" / f"{self.name}.json"
        command = [
            "benchmarks.results.simple",
            "--data",
            str(self.folders.work / "data"),
            "--set",
            str(self.row.set),
        ]
        command += ["--output", str(output)]
        command += [] if self.before is None else ["--encoder", str(self.before)]
        command += ["--linear"] if self.row.kind == LINEAR else []
        self._call(command)
        return {"command": self._shown(command), "scores": json.loads(output.read_text(encoding="utf-8"))}

    def _options(self) -> list[str]:
        rate = (
            {}
            if "@" not in self.name
            else {"train.learning_rate": self.name.rpartition("@")[2].rpartition("-")[0]}
        )
        options = {**self.row.options, **rate, "train.threads": "1", "train.seed": str(self.run.seed)}
        return [word for key, value in options.items() for word in (f"--{key}", value)]

    def _shown(self, command: Sequence[str]) -> str:
        module = [] if command[0] == "tokenfree" else ["python", "-m"]
        return shlex.join([*module, *command]).replace(f"{self.folders.work}/", "")

    def _call(
        self, command: Sequence[str], cpu: CpuSeconds | None = None, output: Path | None = None
    ) -> None:
        call(command, self.folders.work / "logs" / f"{self.name}.log", cpu or self.cpu, output)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def _scores(
    train: Sequence[data.Example], gold: Sequence[data.Example], run: Path, part: str
) -> dict[str, float]:
    predictions = data.read(run / "predictions" / f"{part}.jsonl")
    if "tokens" in gold[0]:
        return scores.name_scores(train, gold, [each["tags"] for each in predictions])
    return scores.text_scores(gold, [each["label"] for each in predictions])


class CpuSeconds:
    """The CPU seconds of all attempts of a run, kept in a file.

    Args:
        file: JSON list of the seconds of each command of each attempt.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._spent: list[float] = json.loads(file.read_text()) if file.exists() else []
        self._spent.append(0.0)

    def total(self) -> float:
        """Return the seconds of all commands."""
        return sum(self._spent)

    def keep(self, seconds: float) -> None:
        """Keep the seconds of the running command."""
        self._spent[-1] = max(self._spent[-1], seconds)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._spent))
        new.rename(self._file)

    def next(self) -> None:
        """Begin another command."""
        self._spent.append(0.0)


def call(command: Sequence[str], log: Path, cpu: CpuSeconds, output: Path | None = None) -> None:
    """Run a Python module to its end.

    If this process is interrupted, the module can write a checkpoint. If this process is killed, so is the
    module.

    Raises:
        Failed: The module ended with an error.
    """
    before = _children_seconds()
    with contextlib.ExitStack() as files:
        errors = files.enter_context(log.open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=errors if output is None else files.enter_context(output.open("wb")),
            stderr=errors,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,  # processes are counted by session; only this process receives Ctrl-C
            preexec_fn=_end_with(os.getpid()),
        )
        try:
            while (status := _poll(process)) is None:
                cpu.keep(_session_seconds(process.pid))
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            cpu.keep(_children_seconds() - before)
            cpu.next()
    if status:
        said = log.read_bytes()[-2000:].decode(errors="replace").strip().splitlines() or [
            "it printed nothing"
        ]
        raise Failed(f"{command[0]} {command[1]} ended with {status}: {said[-1]} ({log})")


def _poll(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _end_with(parent: int) -> Any:
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a slow exit would still hold the run
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _session_seconds(session: int) -> float:
    """Return the CPU seconds of the processes of a session, including their ended children."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


@contextlib.contextmanager
def _lock(file: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock file, which the kernel releases when this process ends. Yield whether the lock was free."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def _revision() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip()
