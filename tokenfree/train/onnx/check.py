"""A graph of ONNX beside the model that it came from, on inputs of many lengths.

B batch, C characters (or bytes, or subwords), U units
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.model.embedders.word_bytes import MASK, NUM_BYTES
from tokenfree.train.onnx.graph import Graph

LENGTHS = (1, 2, 3, 4, 5, 31, 127, 128, 129)  # and the longest two; around blocks of 128, and no multiples of a rate
BATCHES = (1, 3)
TOLERANCE = 1e-4
NUM_CHARACTERS = 0x3000


class Checked(NamedTuple):
    """What a check found."""

    inputs: int
    largest_difference: float


def can_check() -> bool:
    """Whether onnxruntime is installed."""
    return importlib.util.find_spec("onnxruntime") is not None


def check_graph(graph: Graph, path: Path, length: int) -> Checked:
    """Run the graph in `path` by onnxruntime, and `graph` by PyTorch, on inputs of up to `length` positions.

    Raises:
        UserError: an output differs by more than `TOLERANCE`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    count, largest = 0, 0.0
    for inputs in examples(graph, length):
        with torch.no_grad():
            ours = graph(**inputs)
        named = {name: tensor.numpy() for name, tensor in inputs.items()}
        for name, one, other in zip(graph.output_names, ours, session.run(graph.output_names, named), strict=True):
            difference = _difference(one.numpy(), np.asarray(other))
            if not difference <= TOLERANCE:
                shape = list(inputs["codepoints"].shape)
                raise UserError(
                    f"the graph is not the model: {name} of inputs of shape {shape} differs by {difference:.3g}, more "
                    f"than {TOLERANCE}; nothing was exported"
                )
            largest = max(largest, difference)
        count += 1
    return Checked(count, largest)


def examples(graph: Graph, length: int) -> Iterator[dict[str, Tensor]]:
    """Random inputs of all lengths up to `length` and of one text or several, with padding behind some."""
    generator = np.random.default_rng(0)
    for positions in sorted({*(number for number in LENGTHS if number < length), length - 1, length}):
        for batch in BATCHES:
            yield example(graph, batch, positions, generator)


def example(graph: Graph, batch: int, positions: int, generator: np.random.Generator) -> dict[str, Tensor]:
    """One random input, [B, C] each, by name: the first is full, the next shorter, the third CLS alone. Where there are
    segments, the second half of each is segment 1.
    """
    config = graph.encoder.config
    low, high = {
        "characters": (1, NUM_CHARACTERS),
        "bytes": (MASK + 1, NUM_BYTES),
        "subwords": (1, getattr(config.embedder, "size", 2)),
    }[config.embedder.symbols]
    real_B = np.array([positions, -(-2 * positions // 3), 1])[:batch]
    mask_BC = np.arange(positions) < real_B[:, None]
    codepoints_BC = generator.integers(low, high, (batch, positions)) * mask_BC
    arrays = {"codepoints": codepoints_BC, "mask": mask_BC}
    if "segments" in graph.input_names:
        arrays["segments"] = (mask_BC & (np.arange(positions) >= (real_B[:, None] + 1) // 2)).astype(np.int64)
    if graph.reads_words:
        room = max(positions // config.downsampler.bytes_per_word, 1)
        arrays["unit_ends"] = np.stack([_ends(real, room, generator) for real in real_B.tolist()])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _ends(num_bytes: int, room: int, generator: np.random.Generator) -> np.ndarray:
    """Where the words end, at most `room`, that make up `num_bytes` bytes: int64 [U]; the last ones may be empty."""
    cuts = generator.choice(np.arange(1, max(num_bytes, 2)), min(room, num_bytes) - 1, replace=False)
    ends = np.full(room, num_bytes)
    ends[: len(cuts)] = np.sort(cuts)
    return ends


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest one between values of two arrays; infinite for other shapes, 0 where both are infinite alike."""
    if one.shape != other.shape:
        return np.inf
    differ = one != other
    return float(np.abs(one[differ].astype(np.float64) - other[differ]).max(initial=0))
