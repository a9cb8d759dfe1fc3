"""The process group listens on the address that it is given, and on no other."""

import contextlib
import json
import os
import socket
import sys

import pytest

from tests.train.fork_server import fork
from tokenfree.train.ray.process_group import interface_of

ONE_OF_TWO = """
import json, os, sys
from datetime import timedelta
import torch, torch.distributed as dist
from tests.train.listening import addresses
from tokenfree.train.ray.process_group import join, keep_to, listen

rank = int(sys.argv[1])
if rank == 0:
    listener = listen("127.0.0.1")
    port = listener.getsockname()[1]
    print(port, flush=True)
else:
    listener, port = None, int(sys.argv[2])
keep_to("127.0.0.1")
join("gloo", rank=rank, world_size=2, address="127.0.0.1", port=port, listener=listener, timeout=timedelta(seconds=60))
ones = torch.ones(1)
dist.all_reduce(ones)
found = [addresses(os.getpid(), connected=connected) for connected in (False, True)]
dist.barrier()
print(json.dumps([ones.item(), *found]), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_two_workers_listen_on_loopback_only() -> None:
    with contextlib.ExitStack() as stack:
        pipes = [os.pipe() for _ in range(2)]
        first, second = (stack.enter_context(open(reading)) for reading, _ in pipes)
        with open(pipes[0][1], "w") as stdout:
            fork(ONE_OF_TWO, "0", stdout=stdout)
        port = first.readline().strip()
        with open(pipes[1][1], "w") as stdout:
            fork(ONE_OF_TWO, "1", port, stdout=stdout)
        said = [json.loads(printed.read().splitlines()[-1]) for printed in (first, second)]
    assert [one[0] for one in said] == [2.0, 2.0]
    assert set(said[0][1]) == {"127.0.0.1"}  # the store; Gloo listens only until all have met
    assert set(said[1][1]) <= {"127.0.0.1"}
    assert set(said[0][2]) == set(said[1][2]) == {"127.0.0.1"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told on Linux only")
def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.123") is None
    assert "lo" in [name for _, name in socket.if_nameindex()]
