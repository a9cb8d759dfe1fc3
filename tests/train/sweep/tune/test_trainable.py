"""The processes of trials end with the cluster that they are of."""

import socket

import pytest

from tests.train.fork_server import fork

PROGRAM = """
import sys, time
from types import SimpleNamespace
import ray
from tokenfree.train.ray import cluster as session
from tokenfree.train.sweep import tune
ray.get_runtime_context = lambda: SimpleNamespace(gcs_address="127.0.0.1:" + sys.argv[1])
ray.nodes = list
session._LOOK_SECONDS, session._HEAD_PATIENCE = 0.1, 0.5
trial = tune.Trainable.__new__(tune.Trainable)
trial.setup({})
time.sleep(2)
trial.cleanup()
"""


@pytest.mark.parametrize(("is_there", "status"), [(True, 0), (False, 1)])
def test_where_the_head_does_not_answer_they_end(is_there: bool, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        if not is_there:
            head.close()
        assert fork(PROGRAM, str(port)).wait(120) == status
