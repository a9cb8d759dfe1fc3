"""Two processes of one gloo group, each of which runs the same lines."""

import json
from pathlib import Path
from typing import Any

from tests.train.fork_server import fork

# A process may crash in a thread of Gloo as Python is taken down, and lose what it has printed; where
# something still holds the group, it does so even after the group was destroyed
# (https://github.com/pytorch/pytorch/pull/179291). So it ends at once, as the workers of a run do, which are
# killed.
AROUND = """
import json, os, sys
import torch.distributed as dist

store, rank, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
{lines}
print(json.dumps(result), flush=True)
os._exit(0)
"""
TRAINING = """
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop

recipe = build(PretrainRecipe, json.loads(arguments[0]), source="test")
loop = Loop(recipe, arguments[1], rank=rank, world_size=2)
lines = list(loop.steps(int(arguments[2])))
result = [lines, loop.validate()]
"""


def in_two_processes(lines: str, folder: Path, *arguments: str) -> list[Any]:
    """The `result` of each rank.

    The lines know `rank`, `arguments` and `dist`; `folder` keeps the group's store.
    """
    program, store = AROUND.format(lines=lines), str(folder / "store")
    with (folder / "first").open("w+") as first, (folder / "second").open("w+") as second:
        processes = [
            fork(program, store, str(rank), *arguments, stdout=stdout)
            for rank, stdout in enumerate((first, second))
        ]
        assert [process.wait() for process in processes] == [0, 0]
        first.seek(0)
        second.seek(0)
        return [json.loads(stdout.read().splitlines()[-1]) for stdout in (first, second)]
