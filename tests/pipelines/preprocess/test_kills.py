"""A job killed with SIGKILL at random moments, again and again, ends with the bytes of an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenfree.preprocess.dataset.verify import verify

Shards = Callable[[Path], dict[str, bytes]]
OPTIONS = [
    "--vocabulary.size",
    "320",
    "--vocabulary.required_characters",
    "none",
    "--vocabulary.character_coverage",
    "0.98",
    "--window.max_characters",
    "64",
    "--split_bytes",
    "4000",
    "--shards",
    "6",
]


def start(corpus: Path, output: Path, workers: int) -> "subprocess.Popen[bytes]":
    """The real command, with all its processes in a group of their own."""
    command = [
        sys.executable,
        "-m",
        "tokenfree",
        "preprocess",
        "--books",
        str(corpus),
        "--output",
        str(output),
    ]
    return subprocess.Popen(
        [*command, *OPTIONS, "--workers", str(workers)], stderr=subprocess.DEVNULL, start_new_session=True
    )


def kill_until_done(corpus: Path, output: Path, *, workers: int, seconds: float, draw: random.Random) -> int:
    """Kill the job at random moments, start it again, until one of its lives reaches the end; how often it was killed.

    `seconds` is the length of an undisturbed job with as many workers. Half of it goes by before anything is
    written, so moments are drawn from the rest; each life has less to do than the one before.
    """
    for kills in range(100):
        process = start(corpus, output, workers)
        try:
            assert process.wait(draw.uniform(0.4, 1.0) * seconds) == 0
            return kills
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    raise AssertionError("the job does not end: it loses what it did before each kill")


def check(output: Path, wanted: Path, read_shards: Shards) -> None:
    assert read_shards(output) == read_shards(wanted)
    assert (output / "manifest.json").read_bytes() == (wanted / "manifest.json").read_bytes()
    assert not list(output.glob("_*/**/*"))
    verify(str(output))


def undisturbed(corpus: Path, output: Path, workers: int) -> float:
    """Run a job that nobody kills, and return its seconds."""
    begin = time.monotonic()
    assert start(corpus, output, workers).wait(120) == 0
    return time.monotonic() - begin


def test_killed_at_random_moments(corpus: Path, tmp_path: Path, read_shards: Shards) -> None:
    wanted = tmp_path / "undisturbed"
    seconds = undisturbed(corpus, wanted, 1)
    draw = random.Random(1)
    kills = 0
    for number in range(20):
        kills += kill_until_done(corpus, tmp_path / str(number), workers=1, seconds=seconds, draw=draw)
        check(tmp_path / str(number), wanted, read_shards)
        if kills >= 3:
            return
    raise AssertionError(f"only {kills} kills hit the job alive")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_many_times(corpus: Path, tmp_path: Path, read_shards: Shards, workers: int) -> None:
    wanted = tmp_path / "undisturbed"
    seconds = undisturbed(corpus, wanted, workers)
    draw = random.Random(workers)
    kills = number = 0
    while kills < 25:
        output = tmp_path / str(number)
        kills += kill_until_done(corpus, output, workers=workers, seconds=seconds, draw=draw)
        check(output, wanted, read_shards)
        number += 1
