"""A process beside a command, in a session of its own, that tells what becomes of it: also of its death by SIGKILL.

Its standard input has a line of JSON first (`Watched`), then one for each sign of life (`facts`), at last one with the
`status` at which the command ended. Where that never comes, the command is dead.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

from tokenfree.workflows.watching.receiver import OPTION, deliver

Status = Literal["finished", "failed", "stopped", "stalled", "dead"]
STALLED_SECONDS, STALLED_STEPS = 1800.0, 10  # without a step: whichever is longer
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # meant for the command, whose end is yet to be told
_RECENT = 20  # steps of which the usual time is known


@dataclasses.dataclass(frozen=True)
class Watched:
    """The command.

    Attributes:
        receiver: see `receiver`.
        command: its name.
        output: what it makes.
        process: a descriptor that can be read once it is no more; None where the system has none.
        stalled_after: seconds; None: see `STALLED_SECONDS`.
    """

    receiver: str
    command: str
    output: str
    process: int | None
    stalled_after: float | None = None

    def notice(self, status: Status, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What the receiver is told."""
        told = {name: value for name, value in facts.items() if name != "message"}
        values = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in told.items()}
        shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
        text = f"tokenfree {self.command} {self.output}: {status}" + (f" ({shown})" if shown else "")
        message = facts.get("message")
        return {
            "text": f"{text}: {message}" if message else text,
            "status": status,
            "command": self.command,
            "output": self.output,
            "time": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **facts,
        }


class Patience:
    """How long no step is nothing unusual.

    Args:
        given: the seconds, where the user says so.
    """

    def __init__(self, given: float | None) -> None:
        self._given = given
        self._recent: collections.deque[float] = collections.deque(maxlen=_RECENT)

    def note(self, seconds: float) -> None:
        """Take the time of a step."""
        self._recent.append(seconds)

    @property
    def seconds(self) -> float:
        """Of it."""
        if self._given is not None:
            return self._given
        usual = statistics.median(self._recent) if self._recent else 0.0
        return max(STALLED_SECONDS, STALLED_STEPS * usual)


class Signs:
    """What comes from the command.

    Args:
        source: the descriptor of a pipe.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._rest = b""
        self._lines: collections.deque[Any] = collections.deque()
        self.process: int | None = None  # see `Watched`

    def next(self, seconds: float | None) -> Any:
        """The next line; None where none comes in these seconds.

        Raises:
            EOFError: none will come any more, for the command is at its end.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while not self._lines:
            left = None if until is None else max(0.0, until - time.monotonic())
            sources = [self._source] + ([] if self.process is None else [self.process])
            ready = select.select(sources, [], [], left)[0]
            if not ready:
                return None
            if self._source not in ready:  # it is dead, and all that it wrote is read
                raise EOFError
            read = os.read(self._source, 65536)
            if not read:
                raise EOFError
            *whole, self._rest = (self._rest + read).split(b"\n")
            self._lines += [json.loads(line) for line in whole]
        return self._lines.popleft()


def main() -> None:
    """Watch the command at the other end of standard input until it ends."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    signs = Signs(sys.stdin.fileno())
    watched = Watched(**signs.next(None))
    signs.process = watched.process
    status, facts = _watch(watched, signs)
    _tell(watched, status, facts)


def _watch(watched: Watched, signs: Signs) -> tuple[Status, Mapping[str, Any]]:
    """Tell when it stalls; how it ended, and how far it was."""
    patience, since, facts = Patience(watched.stalled_after), time.monotonic(), {}
    is_stalled = False
    while True:
        wait = None if is_stalled else max(0.0, since + patience.seconds - time.monotonic())
        try:
            sign = signs.next(wait)
        except EOFError:
            return "dead", facts
        if sign is None:
            is_stalled = True
            minutes = (time.monotonic() - since) / 60
            _tell(watched, "stalled", {**facts, "message": f"no step for {minutes:.3g} minutes"})
            continue
        facts = sign["facts"]
        if "status" in sign:
            return sign["status"], facts
        now = time.monotonic()
        if not is_stalled:
            patience.note(now - since)
        since, is_stalled = now, False


def _tell(watched: Watched, status: Status, facts: Mapping[str, Any]) -> None:
    problem = deliver(watched.receiver, watched.notice(status, facts))
    if problem is not None:
        print(f"tokenfree: {OPTION}: {problem}; it was to be told: {status}", file=sys.stderr)


if __name__ == "__main__":
    main()
