"""Clusters of Ray nodes as processes of this machine."""

import contextlib
from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster


@contextlib.contextmanager
def cluster_of(nodes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without CPUs, where the command is, and nodes with one CPU each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
