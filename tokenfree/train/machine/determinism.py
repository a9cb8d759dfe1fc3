"""torch's choice of kernels, without importing its compiler, which takes a second and more."""

import sys

import torch
from torch.utils import deterministic


def set_determinism(mode: int) -> None:
    """Take any kernels (0), deterministic ones where there are such (1), or no others (2), as
    `torch.set_deterministic_debug_mode` has it; in compiled code too, once the compiler is imported.
    """
    # Filling each new tensor with NaN shows reads of memory that nothing wrote. It takes 15% of a small model's step.
    deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)
    else:
        torch.set_deterministic_debug_mode(mode)
