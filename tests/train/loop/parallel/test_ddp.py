"""Data parallel workers average their gradients."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.train.two_processes import in_two_processes

GRADIENTS = """
import torch
from tokenfree.train.loop.parallel import DataParallel

layer = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.ones_(layer.weight)
shared = DataParallel(layer)

def gradient(last):
    with shared.gradient_sync(last=last):
        shared.module(torch.tensor([[1.0, 10.0]]) * (rank + 1)).sum().backward()
    return layer.weight.grad.flatten().tolist()

result = [gradient(False), gradient(True)]
"""
MODES = """
import torch
from tokenfree.train.torch_state import set_determinism
from tokenfree.train.loop.parallel import compile_task

set_determinism(1)
modes = [torch.get_deterministic_debug_mode()]
from torch._inductor import config
modes.append(config.deterministic)
for mode in (1, 0, 2):
    set_determinism(mode)
    modes += [torch.get_deterministic_debug_mode(), config.deterministic]
config.deterministic = False
compile_task(torch.nn.Linear(1, 1), [], in_parts=False)
print([*modes, config.deterministic])
"""


def test_gradients_are_averaged_at_the_last_part_of_a_batch(tmp_path: Path) -> None:
    for rank, (own, both) in enumerate(in_two_processes(GRADIENTS, tmp_path)):
        assert own == pytest.approx([rank + 1, 10 * (rank + 1)])
        assert both == pytest.approx([3, 30])  # the mean of twice 1 and twice 2


@pytest.mark.slow
def test_the_compiler_hears_of_determinism_once_it_is_imported() -> None:
    command = [sys.executable, "-c", MODES]
    printed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    assert printed.split("\n")[0] == "[1, False, 1, True, 0, False, 2, True, True]"
