"""Whether the model is being traced into a graph for sequences of any length."""

import torch

# Before torch 2.12, `is_exporting` is also true inside torch.compile, although its graphs have fixed shapes.
_ALSO_COMPILING = torch.__version__ < "2.12"


def is_exporting() -> bool:
    """Return True while torch.export traces the model."""
    return torch.compiler.is_exporting() and not (_ALSO_COMPILING and torch.compiler.is_dynamo_compiling())
