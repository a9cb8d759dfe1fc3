"""How the commands of the queues end."""

import subprocess
import sys

from tests.conftest import REPOSITORY

IN_THE_BACKGROUND = """
import os, signal, time
from benchmarks.learning.command import exit_status

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells start what they put in the background

def run():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
    return 0

raise SystemExit(exit_status("queue", run))
"""


def test_sigterm_interrupts_in_the_background_too() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_BACKGROUND], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, "queue: interrupted; the same command again goes on")
