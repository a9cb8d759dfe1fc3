"""Whether the model is being traced into a graph for sequences of any length."""

import torch


def is_exporting() -> bool:
    """Return True while torch.export traces the model.

    Inside torch.compile, torch 2.11's own function returns True as well, although its graphs have fixed shapes.
    """
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
