"""Processes end with those that started them."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

CHILD = """
import sys, time
from tokenfree.core.machine import end_with_parent

end_with_parent(int(sys.argv[1]))
print("lives", flush=True)
time.sleep(60)  # at most: it is to be killed before
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)  # the test kills it before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the death of a parent is told by Linux alone")
def test_a_child_is_killed_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_whose_parent_is_gone_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "999999999"], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")
