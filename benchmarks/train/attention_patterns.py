"""Attention patterns compared with full attention on long inputs: python -m benchmarks.train.attention_patterns

A trunk of base width (768, with 12 heads), by default of one layer, runs over 1,024 to 8,192 units of one
example. The benchmark measures CPU seconds of a training step (forward and backward, dropout 0.1) and of a
forward pass without gradients, in turn. It also measures how much each raises the peak memory of a separate
process. One thread.
"""

import argparse
import functools
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import Seconds, in_turn, median, quotient
from tokenfree.core.settings import build
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import ModelConfig, Trunk

PATTERNS: dict[str, Any] = {
    "full": "full",
    "sliding_global": {"name": "sliding_global", "one_sided_window": 64, "global_units": 1},
    "multi_scale": "multi_scale",
    "multi_scale, 1 to 9": {"name": "multi_scale", "scales": [1, 3, 5, 7, 9]},
}
MODES = ("training", "forward")
MIB = 2**20
MAX_FULL_UNITS = 4096  # units; with twice as many, each copy of the weights takes 3 GiB


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    if options.only:
        print(rise_of_peak(options.only, options))
        return
    for name in PATTERNS if options.memory_lengths else ():
        for mode in MODES:
            print(f"{name:20} {mode:9} MiB", end="")
            for length in options.memory_lengths:
                if name != "full" or length <= MAX_FULL_UNITS:
                    print(
                        f", {length:,} units: {peak_memory(name, length, mode, options) / MIB:.0f}",
                        end="",
                        flush=True,
                    )
            print()
    for length in options.lengths:
        for mode in MODES:
            seconds = measure(length, mode, options)
            for name, values in seconds.items():
                print(
                    f"{length:6} units, {mode:9} {name:20} {median(values):7.3f} CPU s, best {min(values):7.3f}, "
                    f"{1 / quotient(seconds, name, 'full'):5.2f} times as fast as full",
                    flush=True,
                )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--memory-lengths", type=int, nargs="*", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--only", choices=PATTERNS, help="one pattern: print by how many bytes it raises the peak"
    )
    parser.add_argument("--length", type=int, help="with --only")
    parser.add_argument("--mode", choices=MODES, default="training", help="with --only")
    return parser.parse_args()


def measure(length: int, mode: str, options: argparse.Namespace) -> Seconds:
    runs = {name: make_run(name, length, mode, options) for name in PATTERNS}
    return in_turn(runs, options.rounds)


def make_run(name: str, length: int, mode: str, options: argparse.Namespace) -> Callable[[], None]:
    """Return a training step without optimizer, or a forward pass, of the same trunk with one pattern."""
    torch.manual_seed(0)
    fields = {"layers": options.layers, "dropout": options.dropout, "attention": PATTERNS[name]}
    trunk = Trunk(build(TrunkConfig, fields, source="benchmark"), ModelConfig().dimensions)
    units, valid = torch.randn(1, length, trunk.width), torch.arange(length)[None] < 0.9 * length
    return functools.partial(train if mode == "training" else infer, trunk, units, valid)


def train(trunk: Trunk, units: torch.Tensor, valid: torch.Tensor) -> None:
    trunk.train()
    trunk.zero_grad()
    trunk(units, valid).square().sum().backward()


@torch.inference_mode()
def infer(trunk: Trunk, units: torch.Tensor, valid: torch.Tensor) -> None:
    trunk.eval()
    trunk(units, valid)


def rise_of_peak(name: str, options: argparse.Namespace) -> int:
    """Return by how many bytes two runs raise the peak memory of this process above that of a run on a few units."""
    make_run(name, 64, options.mode, options)()
    run = make_run(name, options.length, options.mode, options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def peak_memory(name: str, length: int, mode: str, options: argparse.Namespace) -> int:
    """Return `rise_of_peak` of a new process.

    Call it while this process is small, because the child's peak starts at the size of its parent.
    """
    given = {
        "--only": name,
        "--length": length,
        "--mode": mode,
        "--layers": options.layers,
        "--dropout": options.dropout,
    }
    command = [
        sys.executable,
        "-m",
        "benchmarks.train.attention_patterns",
        *(str(x) for pair in given.items() for x in pair),
    ]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
