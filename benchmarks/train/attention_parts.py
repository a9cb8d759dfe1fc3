"""Attention in bfloat16 on the CPU, in parts or by the fused kernel: python -m benchmarks.train.attention_parts

It runs forward and backward without dropout in one thread, with about the same number of positions in each
batch. The ratio is CPU seconds of PyTorch's kernel divided by those of our parts: above 1, parts are faster.
`train/model/common/attention.py` uses parts for up to `FEW_KEYS` keys. The last column is the kernel in
float32 divided by our parts in bfloat16.
"""

import argparse
import functools
from unittest import mock

import torch

from benchmarks.timing import in_turn, median, quotient
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common import attention

KEYS = (16, 32, 64, 128, 192, 256, 384, 512)
SHAPES = ((4, 16), (4, 64), (12, 64))  # number of heads, and their width
POSITIONS = 4096
FUSED, PARTS, FLOAT32 = "fused", "parts", "fused, float32"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("heads width  keys    parts    fused  parts faster  fused in float32 over parts")
    for heads, width in SHAPES:
        for keys in KEYS:
            runs = {
                PARTS: functools.partial(step, heads, width, keys, torch.bfloat16, few=keys),
                FUSED: functools.partial(step, heads, width, keys, torch.bfloat16, few=0),
                FLOAT32: functools.partial(step, heads, width, keys, torch.float32, few=0),
            }
            seconds = in_turn(runs, rounds)
            parts, fused = (1e3 * median(seconds[name]) for name in (PARTS, FUSED))
            print(
                f"{heads:5} {width:5} {keys:5} {parts:5.1f} ms {fused:5.1f} ms "
                f"{quotient(seconds, FUSED, PARTS):12.2f}x "
                f"{quotient(seconds, FLOAT32, PARTS):27.2f}x",
                flush=True,
            )


def step(heads: int, width: int, keys: int, dtype: torch.dtype, *, few: int) -> None:
    """Run forward and backward of the attention of one layer, in parts if there are at most `few` keys."""
    shape = (POSITIONS // keys, heads, keys, width)
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    hidden = attention.hide(torch.ones(shape[0], 1, 1, keys, dtype=torch.bool), dtype)
    with mock.patch.object(attention, "FEW_KEYS", few):
        FullAttention(0.0).attend(q, k, v, hidden).sum().backward()


if __name__ == "__main__":
    main()
