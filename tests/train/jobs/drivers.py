"""What stands in for the process that is connected to Ray; its module imports next to nothing."""

import os
import signal
import time
from pathlib import Path

from tokenfree.core.child import Link
from tokenfree.core.errors import JobError

FOLDER, SESSION, RUN = "TEST_FOLDER", "session", "run"


def begin(link: Link) -> int:
    """Sends the session; returns how often there was a driver before."""
    folder = Path(os.environ[FOLDER])
    link.send((folder / SESSION).read_bytes())
    with (folder / "begun").open("a+") as file:
        file.write("x")
        return file.tell() - 1


def die_twice(link: Link, job: bytes, workers: tuple[int, int], *, times: int = 2) -> None:
    before = begin(link)
    link.send({"event": "start", "step": before})
    os.write(2, b"[core_worker.cc] lost\n")
    if before < times:
        os.kill(os.getpid(), signal.SIGKILL)


def die_once(link: Link, job: bytes, workers: tuple[int, int]) -> None:
    die_twice(link, job, workers, times=1)


def lose(link: Link, job: bytes, workers: tuple[int, int]) -> str:
    begin(link)
    return "the head was lost"


def finish_and_die(link: Link, job: bytes, workers: tuple[int, int]) -> None:
    begin(link)
    run = Path(os.environ[FOLDER]) / RUN
    run.mkdir()
    (run / "result.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)


def place_slowly(link: Link, job: bytes, workers: tuple[int, int]) -> None:
    begin(link)
    link.send({"event": "launch", "message": "placing"})
    time.sleep(1.5)
    link.send({"event": "start", "step": 0})
    # No line about waiting follows.
    time.sleep(1.0)


def die_at_once(link: Link, job: bytes, workers: tuple[int, int]) -> None:
    os._exit(1)


def wait_for_the_end(link: Link, job: bytes, workers: tuple[int, int]) -> None:
    begin(link)
    asked: list[str] = []
    link.listen(asked.append)
    link.send({"event": "start", "step": 0})
    while not asked:
        time.sleep(0.05)
    raise JobError(f"stopped by {asked[0]} after step 3")
