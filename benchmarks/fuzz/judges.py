"""What must hold after a command, whatever was done to its files and processes. Each judge raises `Finding`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fuzz.commands import Outcome
from tokenfree.core.locks import LOCK

LONGEST = 1500  # characters of a line
# Signs that move the cursor, colour, erase, or turn the direction of the text of who reads it.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
NO_ERROR = re.compile(r"^(warning: |note: |  |\d\d:\d\d:\d\d  )|: warning: ")  # notices, and lines of a list
TIMES = frozenset({"seconds", "data_wait", "utilisation"})  # the only fields of a step that may differ
SHARED = ("train", "validation", "vocabulary", "failures")  # folders of a data directory
Sample = Mapping[str, bytes]


class Finding(AssertionError):
    """A promise that was broken; the message says how."""


def judge_message(outcome: Outcome) -> None:
    """It ended in time, by itself, with status 0, 1 or 2; an error is one line; nothing of it is left."""
    if outcome.is_late:
        raise Finding(f"no end after {outcome.seconds:.0f} s")
    if outcome.left:
        raise Finding(f"left {len(outcome.left)} processes behind: {outcome.left[0][:200]}")
    if outcome.was_killed:
        return
    if outcome.status not in (0, 1, 2):
        raise Finding(f"exit status {outcome.status}")
    for text in (outcome.out, outcome.err):
        found = CONTROLS.search(text)
        if found:
            raise Finding(f"control character {found[0]!r} after {text[max(0, found.start() - 80) : found.start()]!r}")
    for phrase in ("Traceback (most recent call last)", "unexpected failure"):
        if phrase in outcome.err + outcome.out:
            raise Finding(f"{phrase!r} in what it says")
    lines = outcome.err.splitlines()
    longest = max(lines, key=len, default="")
    if len(longest) > LONGEST:
        raise Finding(f"a line of {len(longest)} characters: {longest[:100]!r}")
    errors = [line for line in lines if not NO_ERROR.search(line)]
    if outcome.status == 0 and errors:
        raise Finding(f"status 0, but it says: {errors[0][:200]!r}")
    if outcome.status and len(errors) != 1:
        raise Finding(f"status {outcome.status} with {len(errors)} lines of error in place of one")
    if outcome.status and not errors[0].startswith("tokenfree"):
        raise Finding(f"an error that is not its own: {errors[0][:200]!r}")


def shards(data: Path) -> dict[str, bytes]:
    """What readers of a data directory see, and its manifest."""
    files = [file for name in SHARED for file in (data / name).rglob("*") if file.is_file()]
    files += [file for file in (data / "manifest.json",) if file.is_file()]
    return {str(file.relative_to(data)): file.read_bytes() for file in sorted(files)}


def judge_shards(data: Path, wanted: Sample) -> None:
    """The same bytes as those of an undisturbed job, and nothing else beside them."""
    found = shards(data)
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or more:
        raise Finding(f"{data.name}: missing {missing[:3]}, too many {more[:3]}")
    for name, content in wanted.items():
        if found[name] != content:
            raise Finding(f"{data.name}/{name}: other bytes than an undisturbed job's")
    own = [data / "_SUCCESS", *([data / LOCK] if (data / LOCK).is_dir() else [])]  # that of a store says it is free
    rest = [str(path.relative_to(data)) for path in data.glob("_*") if path not in own]
    if rest:
        raise Finding(f"{data.name}: left over {rest[:3]}")


def losses(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without times, in order."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def result(run: Path) -> dict[str, Any]:
    """What the run came to, without times and paths."""
    found = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return {key: value for key, value in found.items() if key not in ("seconds", "checkpoint")}


def judge_losses(run: Path, wanted: list[dict[str, Any]], wanted_result: Mapping[str, Any]) -> None:
    """Every step once, with the numbers of an undisturbed run to the last bit, and the same result."""
    try:
        found, ended = losses(run), result(run)
    except (OSError, ValueError) as error:
        raise Finding(f"{run.name}: metrics or result cannot be read: {error}") from None
    for line, expected in zip(found, wanted, strict=False):
        if line != expected:
            keys = [key for key in expected if line.get(key) != expected[key]] or sorted(line.keys() - expected.keys())
            raise Finding(f"{run.name}: step {expected['step']} has other {', '.join(keys[:3])}: {line}"[:300])
    if len(found) != len(wanted):
        raise Finding(f"{run.name}: {len(found)} lines of metrics in place of {len(wanted)}")
    if ended != wanted_result:
        keys = [key for key in wanted_result if ended.get(key) != wanted_result[key]]
        raise Finding(f"{run.name}: result.json has other {', '.join(keys)}")


def judge_noticed(outcome: Outcome, what: str) -> None:
    """It said that something is wrong."""
    if outcome.status == 0:
        raise Finding(f"does not notice: {what}")


def expect(holds: bool, message: str) -> None:
    """Raise a finding unless it holds."""
    if not holds:
        raise Finding(message)


def finding_of(judge: Callable[[], object]) -> str | None:
    """What a judge finds, or None."""
    try:
        judge()
    except Finding as finding:
        return str(finding)
    return None
