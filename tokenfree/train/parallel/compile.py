"""torch.compile for the task of a run, in place: checkpoints and parameters keep their names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.machine.determinism import set_determinism


def compile_task(task: nn.Module, layers: Iterable[nn.Module], *, device: torch.device, in_parts: bool) -> None:
    """Compile `task` as one, or `in_parts` only its `layers`: sharded layers are gathered between them.

    Args:
        layers: the deep stack of `task`.
        device: where `task` is.

    Raises:
        UserError: no C++ compiler is found, which the CPU needs.
    """
    import torch._inductor  # imports much

    set_determinism(torch.get_deterministic_debug_mode())
    if device.type == "cpu":
        _find_compiler()
    for module in layers if in_parts else [task]:
        module.compile()


def _find_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise UserError(
            "train.compile: torch.compile needs a C++ compiler and finds none; install g++ or set train.compile to "
            "false"
        ) from None
