"""Export a run as an ONNX graph for any batch and length, and compare onnxruntime's outputs with PyTorch's.

Parts of the model check `common.tracing.is_exporting` if their steps depend on a length.

B batch, C characters (or bytes, or subwords), U units, D width, K classes
"""

import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tokenfree.core.errors import UserError, logger
from tokenfree.core.files import AnyPath, write_atomically
from tokenfree.core.machine import install_command
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.text import specials
from tokenfree.train.huggingface.exported_folder import (
    CARD,
    Exported,
    Model,
    folder_head,
    model_card,
    new_folder,
    read_model,
    reads_words,
)
from tokenfree.train.inference.text_encoder import Encoded
from tokenfree.train.model.common.basic import gather_rows
from tokenfree.train.model.embedders.word_bytes import NUM_BYTES
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.tasks import pairs
from tokenfree.train.tasks.base import DownstreamTask
from tokenfree.train.tasks.heads import PlaceHead
from tokenfree.train.torch_state import default_settings

GRAPH, FACTS = "model.onnx", "config.json"
NEEDED = ("onnx", "onnxruntime", "onnxscript")
# And the longest two; also around blocks of 128 and between multiples.
LENGTHS = (1, 2, 3, 4, 5, 31, 127, 128, 129)
BATCHES = (1, 3)
TOLERANCE = 1e-4
NUM_CHARACTERS = 0x3000
USAGE = """\
```python
import onnxruntime

session = onnxruntime.InferenceSession("this folder/model.onnx")
outputs = session.run({outputs}, inputs)
```

`inputs` has the arrays {inputs}, for any batch and length. tokenfree's page "Export a model" shows how they are made of
texts; config.json has the special symbols and the padding."""


class Graph(nn.Module):
    """An encoder and the computation of outputs from it, with named inputs and outputs.

    Inputs are int64 `codepoints` and bool `mask`, [B, C]. Models of two texts also have int64 `segments` [B,
    C]. Models of words also have int64 `unit_ends` [B, U].
    """

    def __init__(self, encoder: Encoder, output_names: Sequence[str], *, reads_pairs: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.reads_words = encoder.config.downsampler.bytes_per_word is not None
        self.input_names = (
            "codepoints",
            "mask",
            *["segments"] * reads_pairs,
            *["unit_ends"] * self.reads_words,
        )
        self.output_names = tuple(output_names)
        self.eval()


class EncoderGraph(Graph):
    """The vectors of an encoder, by their names in `Encoded`. An encoder of words has one per word."""

    def __init__(self, encoder: Encoder, *, pooled_is_trained: bool) -> None:
        super().__init__(encoder, ())
        vectors = ("words", "word_mask") if self.reads_words else ("characters",)
        self.output_names = (*vectors, "cls", "mean", "cls_max", *["pooled"] * pooled_is_trained)

    def forward(
        self, codepoints: Tensor, mask: Tensor, unit_ends: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        if unit_ends is None:
            output = self.encoder(codepoints, mask)
            encoded = Encoded(output.characters, mask, output.pooled, output.units[:, 0])
        else:
            encoded = self._of_words(codepoints, mask, unit_ends)
        return tuple(getattr(encoded, name) for name in self.output_names)

    def _of_words(self, codepoints_BC: Tensor, mask_BC: Tensor, unit_ends_BU: Tensor) -> Encoded:
        """Return the same as a `WordEncoder`.

        A character has the vector of its word, at the character's first byte.
        """
        down, units_BUD = self.encoder.encode(codepoints_BC, mask_BC, unit_ends_BU=unit_ends_BU)
        characters_BCD = gather_rows(units_BUD, down.grouping.unit_BC.expand(len(units_BUD), -1))
        # Not a later byte of a character.
        begins_BC = mask_BC & ((codepoints_BC < 0x80) | (codepoints_BC >= 0xC0))
        words_BUD = units_BUD * down.valid_BU[..., None]
        pooled_BD = self.encoder.pool(units_BUD)
        return Encoded(characters_BCD, begins_BC, pooled_BD, words_BUD[:, 0], words_BUD, down.valid_BU)


class TaskGraph(Graph):
    """The logits of a fine-tuned model. Raises UserError if the task cannot be exported."""

    def __init__(self, task: DownstreamTask, encoder: Encoder, head: Any) -> None:
        pipeline = folder_head(task, head).pipeline
        if reads_words(head):
            raise UserError(
                f"task.name: {task.name} with a linear path, a CRF or vectors of words has a head that cannot be a "
                "graph. Use --to huggingface, or fine-tune with model.neighbours.name: none, task.targets: first and "
                "task.decoder: independent."
            )
        answers = pipeline == "question-answering"
        names = ("start_logits", "end_logits") if answers else ("logits",)
        super().__init__(encoder, names, reads_pairs=answers or isinstance(task, pairs.Config))
        self.head = head
        self.pipeline = pipeline

    def forward(
        self,
        codepoints: Tensor,
        mask: Tensor,
        segments: Tensor | None = None,
        unit_ends: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        # Otherwise `Encoder.forward` pads, and crops its outputs.
        if self.pipeline == "text-classification":
            codepoints, mask, segments = self.encoder.padded(codepoints, mask, segments)
        inputs = {"codepoints": codepoints, "mask": mask, "segments": segments, "unit_ends": unit_ends}
        batch = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        if self.pipeline == "question-answering":
            # CLS, the question and its SEP, as in `QuestionCollator`.
            batch["global"] = mask & (batch["segments"] == 0)
        forward_head = self.head.everywhere if isinstance(self.head, PlaceHead) else self.head.outputs
        return tuple(forward_head(self.encoder, batch).values())


def write_graph(graph: Graph, inputs: Mapping[str, Tensor], path: Path) -> None:
    """Write an ONNX graph with dynamic batch size, length and number of words.

    `inputs` are a batch of at least two for tracing, so that no size is 1. Weights above 2 GB are written
    next to `path`. Raises UserError if packages are missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"not installed: {', '.join(missing)}. Run {install_command('onnx')}.")
    # It warns about missing packages for images.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.onnx.export(
            graph,
            kwargs=dict(inputs),
            dynamo=True,
            verbose=False,
            input_names=graph.input_names,
            output_names=graph.output_names,
            dynamic_shapes={
                name: {0: "batch", 1: "words" if name == "unit_ends" else "length"}
                for name in graph.input_names
            },
        )
    assert program is not None
    program.save(path)


def check_graph(graph: Graph, path: Path, length: int) -> int:
    """Compare onnxruntime on `path` with PyTorch on `graph`, and return the number of inputs, of up to `length`.

    Raises UserError if an output differs by more than `TOLERANCE`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    batches = list(examples(graph, length))
    for inputs in batches:
        with torch.no_grad():
            ours = graph(**inputs)
        named = {name: tensor.numpy() for name, tensor in inputs.items()}
        for name, one, other in zip(
            graph.output_names, ours, session.run(graph.output_names, named), strict=True
        ):
            try:
                torch.testing.assert_close(torch.from_numpy(other), one, rtol=0, atol=TOLERANCE)
            except AssertionError as error:
                raise UserError(
                    f"the graph is not the model: {name} of inputs of shape {list(inputs['codepoints'].shape)} differs "
                    f"by more than {TOLERANCE}; nothing was exported"
                ) from error
    return len(batches)


def examples(graph: Graph, length: int) -> Iterator[dict[str, Tensor]]:
    generator = np.random.default_rng(0)
    for positions in sorted({*(number for number in LENGTHS if number < length), length - 1, length}):
        for batch in BATCHES:
            yield example(graph, batch, positions, generator)


def example(graph: Graph, batch: int, positions: int, generator: np.random.Generator) -> dict[str, Tensor]:
    """Return random arrays of one batch, [B, C] each, by name. The first row is full, others are padded."""
    config = graph.encoder.config
    low, high = {
        "characters": (1, NUM_CHARACTERS),
        "bytes": (specials.BYTE_MASK + 1, NUM_BYTES),
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
        # Words of equal size. The last one is shorter, and those after it are empty.
        arrays["unit_ends"] = np.minimum(
            np.arange(1, room + 1) * -(-real_B[:, None] // room), real_B[:, None]
        )
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@default_settings()
def export_graph(
    run: AnyPath,
    folder: AnyPath,
    *,
    step: int | None = None,
    trust_code: bool = False,
    progress: Callable[[str], Any] = logger.info,
) -> Exported:
    """Write the encoder of a run, or the model of a fine-tuned one, as a new `folder` with an ONNX graph for any size.

    `progress` gets a line at the start of each slow step, and the result of the check.

    Raises UserError if the run does not exist, its task cannot be exported, packages are missing, the folder
    holds files, or the check fails, and JobError if the checkpoint is damaged.
    """
    model = read_model(run, step, trust_code=trust_code)
    encoder, length, pipeline = model.encoder, model.encoder.length, "feature-extraction"
    if model.task is None or model.head is None:
        graph = EncoderGraph(encoder.encoder, pooled_is_trained=encoder.pooled_is_trained)
    else:
        graph = TaskGraph(model.task, encoder.encoder, model.head)
        pipeline = graph.pipeline
    with new_folder(folder) as target:
        path = target / GRAPH
        progress("tracing the model as a graph, which can take a minute")
        write_graph(graph, example(graph, 3, length, np.random.default_rng(0)), path)
        progress("comparing onnxruntime with PyTorch")
        count = check_graph(graph, path, length)
        progress(f"checked {count} inputs of several lengths: equal within {TOLERANCE}")
        inputs = ", ".join(f"`{name}`" for name in graph.input_names)
        usage = USAGE.format(outputs=json.dumps(graph.output_names), inputs=inputs)
        card = model_card(model, kind="ONNX", library="onnx", pipeline=pipeline, usage=usage)
        write_atomically(target / CARD, card)
        write_atomically(target / FACTS, json.dumps(_facts(model, graph), indent=2) + "\n")
    return Exported("onnxruntime.InferenceSession", model.checkpoint.step)


def _facts(model: Model, graph: Graph) -> dict[str, Any]:
    encoder, task, config = model.encoder, model.task, graph.encoder.config
    padding, symbols = encoder.padding, config.embedder.symbols
    facts: dict[str, Any] = {"step": model.checkpoint.step, "symbols": symbols, "length": encoder.length}
    if task is not None:
        facts |= {"task": task.name, "labels": list(getattr(task, "labels", ()))}
    if symbols == "subwords":
        facts["vocabulary"] = model.checkpoint.state.vocabulary
        if model.vocabulary is not None:
            facts["special"] = specials.of_subwords(model.vocabulary.size)._asdict()
    else:
        facts["special"] = (specials.CHARACTERS if symbols == "characters" else specials.BYTES)._asdict()
    if graph.reads_words:
        by_rules = task is not None or model.config.recipe.objective.gives_words
        facts |= {"words": "rules" if by_rules else "subwords"}
        facts["max_words"] = encoder.length // config.downsampler.bytes_per_word
    elif symbols != "subwords":
        facts["pad"] = {"spare": padding.spare, "multiple": math.lcm(padding.group, padding.block or 1)}
    return facts | {"model": to_mapping(config)}
