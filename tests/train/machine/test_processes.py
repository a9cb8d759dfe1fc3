import subprocess
import sys
import time

import pytest

from tokenfree.train.machine.processes import Process, end_stragglers, ray_processes

CHILD = "exec -a {title} {python} -c 'import time; print(1, flush=True); time.sleep(60)'"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


def start(title: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["bash", "-c", CHILD.format(title=title, python=sys.executable)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_finds_ray_s_processes_and_ends_what_hangs() -> None:
    hangs, other = start("ray::Worker"), start("another")
    found = [process for process in ray_processes() if process.pid in (hangs.pid, other.pid)]
    assert [(process.pid, process.title) for process in found] == [(hangs.pid, "ray::Worker")]
    end_stragglers(found, seconds=0.1)
    assert hangs.wait() == -9
    assert other.poll() is None
    other.kill()
    other.wait()
    assert ray_processes() == []


def test_another_process_with_the_same_id_is_left_alone() -> None:
    other = start("ray::Other")
    end_stragglers([Process(other.pid, 0, 1, "ray::Gone")], seconds=0.1)
    assert other.poll() is None
    other.kill()
    other.wait()


def test_nothing_is_waited_for_when_all_are_gone() -> None:
    began = time.monotonic()
    end_stragglers([Process(2**22 + 1, 0, 1, "ray::Gone")], seconds=30)
    assert time.monotonic() - began < 5
