"""Processes end with those that started them; ports are asked."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tokenfree.core.machine import answers, host_and_port

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


def test_whether_something_listens_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert answers(address, seconds=1.0) is True
    assert answers(address, seconds=1.0) is False
    assert answers(("name.invalid", 1), seconds=1.0) is None


def test_addresses_of_a_host_and_a_port() -> None:
    assert host_and_port("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert host_and_port("[::1]:6379") == ("::1", 6379)
    assert [host_and_port(text) for text in ("auto", ":1", "ray://head:port")] == [None] * 3
