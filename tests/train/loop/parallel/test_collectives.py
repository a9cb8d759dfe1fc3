"""What workers say to each other: nothing alone, and the same on each of two."""

from pathlib import Path

import torch

from tests.train.two_processes import in_two_processes
from tokenfree.train.loop.parallel import broadcast, gather, sum_over_workers

TALK = """
import torch
from tokenfree.train.loop.parallel import broadcast, gather, sum_over_workers

vector = torch.tensor([0.1, float(rank)], dtype=torch.float64)
result = [broadcast({"from": rank}), gather([rank] * rank), sum_over_workers(vector).tolist()]
"""


def test_one_worker_talks_to_itself() -> None:
    value = object()
    assert broadcast(value) is value
    assert gather(value) == [value]
    assert sum_over_workers(torch.tensor([1.5, 2.0])).tolist() == [1.5, 2.0]


def test_two_workers_hear_the_same(tmp_path: Path) -> None:
    heard = in_two_processes(TALK, tmp_path)
    assert heard[0] == heard[1] == [{"from": 0}, [[], [1]], [0.2, 1.0]]
