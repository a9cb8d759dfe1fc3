"""What workers say to each other: nothing alone, and the same on each of two."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from tests.conftest import REPOSITORY
from tokenfree.train.parallel.collectives import broadcast, gather, sum_over_workers

ONE_OF_TWO = """
import json, sys
import torch
import torch.distributed as dist
from tokenfree.train.parallel.collectives import broadcast, gather, sum_over_workers

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
vector = torch.tensor([0.1, float(rank)], dtype=torch.float64)
print(json.dumps([broadcast({"from": rank}), gather([rank] * rank), sum_over_workers(vector).tolist()]))
"""


def test_one_worker_talks_to_itself() -> None:
    value = object()
    assert broadcast(value) is value
    assert gather(value) == [value]
    assert sum_over_workers(torch.tensor([1.5, 2.0])).tolist() == [1.5, 2.0]


def test_two_workers_hear_the_same(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_OF_TWO, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
        )
        for rank in range(2)
    ]
    heard = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    assert heard[0] == heard[1] == [{"from": 0}, [[], [1]], [0.2, 1.0]]
