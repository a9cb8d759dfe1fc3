"""Estimate what pretraining a recipe takes: hours, device memory, bytes on disk, money. Nothing is trained.

The time is the recipe's arithmetic divided by the peak of the GPU and the share of it that training reaches
(--utilisation). The last lines list the assumptions.

Examples:
  tokenfree plan canine-s-base --gpus 8 --gpu h100 --price 3
  tokenfree plan canine-s-base --gpus 64 --nodes 8 --utilisation 0.4
"""

import argparse
from dataclasses import dataclass

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PRETRAINING as KIND

UTILISATION = 0.3  # canine-s-base, compiled, reaches 0.33 on an H200


@dataclass(frozen=True)
class Accelerator:
    """One GPU: operations per second for dense matrices in bfloat16 and float32, bytes of memory, and the source."""

    bfloat16: float
    float32: float
    memory: float
    source: str

    def peak(self, precision: str) -> float:
        return self.float32 if precision == "float32" else self.bfloat16


# As published; not measured here. float32 is without TF32, which PyTorch disables by default.
ACCELERATORS = {
    "a100": Accelerator(312e12, 19.5e12, 80e9, "NVIDIA's data sheet of the A100 80GB"),
    "h100": Accelerator(989e12, 67e12, 80e9, "NVIDIA's data sheet of the H100 SXM"),
    "h200": Accelerator(989e12, 67e12, 141e9, "NVIDIA's data sheet of the H200 SXM"),
    "l4": Accelerator(121e12, 30.3e12, 24e9, "NVIDIA's data sheet of the L4"),
}


ARGUMENTS: options.Arguments = {
    **options.recipe(KIND),
    "--gpus": {
        "metavar": "N",
        "type": options.at_least(1),
        "required": True,
        "help": "total number of GPUs, one worker each",
    },
    "--nodes": {"metavar": "M", "type": int, "default": 1, "help": "number of machines (default 1)"},
    "--gpu": {"choices": tuple(ACCELERATORS), "default": "h100", "help": "kind of GPU (default h100)"},
    **options.data("a data directory, or several as for pretrain; without it windows count as full"),
    "--utilisation": {
        "metavar": "X",
        "type": float,
        "help": f"share of the peak that training reaches on GPUs, 0 to 1 (default {UTILISATION}, measured on an H200)",
    },
    "--price": {"metavar": "P", "type": float, "help": "price of a GPU per hour"},
    **options.JSON,
}


def check(args: argparse.Namespace) -> None:
    """Raise UserError if a number is out of range."""
    if args.nodes < 1 or args.gpus % args.nodes:
        raise UserError(
            f"--nodes {args.nodes}: {args.gpus} GPUs cannot be shared evenly by {args.nodes} machines"
        )
    if args.utilisation is not None and not 0 < args.utilisation <= 1:
        raise UserError(
            f"--utilisation {args.utilisation:g}: give a share above 0 and at most 1, such as 0.2"
        )
    if args.price is not None and not 0 <= args.price < float("inf"):
        raise UserError(f"--price {args.price:g}: give what a device costs for an hour")
