import subprocess
import sys

import psutil
import pytest

from tokenfree.train.ray.child import end_stragglers, ray_processes

CHILD = "exec -a {title} {python} -c 'import time; print(1, flush=True); time.sleep(60)'"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bash names processes there")


def start(title: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["bash", "-c", CHILD.format(title=title, python=sys.executable)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_finds_ray_s_processes_and_ends_what_hangs() -> None:
    hangs, other = start("ray::Worker"), start("another")
    assert [process.pid for process in ray_processes()] == [hangs.pid]
    assert [process.pid for process in ray_processes(title="another")] == [other.pid]
    end_stragglers(ray_processes(), seconds=0.1)
    assert hangs.wait() == -9
    assert other.poll() is None
    other.kill()
    other.wait()
    assert ray_processes() == []


def test_another_process_with_the_same_id_is_left_alone() -> None:
    other = start("ray::Other")
    earlier = psutil.Process(other.pid)
    vars(earlier)["_ident"] = (other.pid, 1.0)  # as of a process that began long ago
    end_stragglers([earlier], seconds=0.1)
    assert other.poll() is None
    other.kill()
    other.wait()
