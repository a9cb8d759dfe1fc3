"""Export a run for onnxruntime: the graph, its facts, a check against the model, and the card.

Parts of the model check `torch.compiler.is_exporting` where their steps depend on a length.

B batch, C characters (or bytes, or subwords), U units, D width, P vectors, K classes
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import math
import os
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY, write_atomically
from tokenfree.core.settings import to_mapping
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.text import specials
from tokenfree.train.huggingface.exported_folder import CARD, card_of_run, new_folder
from tokenfree.train.huggingface.tasks import card_of_task
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.inference.text_encoder import Encoded, TextEncoder, load_encoder
from tokenfree.train.loop.step import Task
from tokenfree.train.model.embedders.word_bytes import NUM_BYTES
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.model.upsamplers.identity import gather_rows
from tokenfree.train.runs.config import is_finetuned, read_config, read_finetuned
from tokenfree.train.runs.run import run_at
from tokenfree.train.tasks import classification, pairs, qa_squad, tagging
from tokenfree.train.tasks.base import DownstreamTask
from tokenfree.train.tasks.heads import encode_all

NEEDED = ("onnx", "onnxscript")
INSTALL = "pip install '.[onnx]' in a checkout of tokenfree"


Shape = list[str | int]


class Graph(nn.Module):
    """An encoder, and what is computed of its outputs, under names.

    Args:
        encoder: whose inputs it takes: `codepoints`, `mask` and, for encoders of words of bytes, `unit_ends`.
        output_shapes: by the names of the outputs, in their order; sizes are numbers, or names of what is free.
        has_segments: whether `segments` are an input too; else they are 0 throughout.
    """

    def __init__(self, encoder: Encoder, output_shapes: Mapping[str, Shape], *, has_segments: bool = False) -> None:
        super().__init__()
        self.encoder, self.output_shapes = encoder, output_shapes
        self.reads_words = reads_words(encoder)
        self.input_names = ("codepoints", "mask", *["segments"] * has_segments, *["unit_ends"] * self.reads_words)
        self.output_names = tuple(output_shapes)
        self.eval()


class EncoderGraph(Graph):
    """What an encoder alone gives: Y and the vectors of whole texts, by their names in `Encoded`.

    Of encoders of words of bytes the vectors of `words` come out, of others those of `characters`; `pooled` only where
    it is trained.
    """

    def __init__(self, encoder: Encoder, *, pooled_is_trained: bool) -> None:
        width = encoder.width
        vectors: dict[str, Shape] = {"characters": ["batch", "length", width]}
        if reads_words(encoder):
            vectors = {"words": ["batch", "words", width], "word_mask": ["batch", "words"]}
        of_texts: dict[str, Shape] = {name: ["batch", width] for name in ("cls", "mean", "cls_max", "pooled")}
        of_texts["cls_max"] = ["batch", 2 * width]
        if not pooled_is_trained:
            del of_texts["pooled"]
        super().__init__(encoder, vectors | of_texts)

    def forward(self, codepoints: Tensor, mask: Tensor, unit_ends: Tensor | None = None) -> tuple[Tensor, ...]:
        """The outputs in the order of their names, for int64 codepoints [B, C], bool mask and int64 ends [B, U]."""
        if unit_ends is None:
            output = self.encoder(codepoints, mask)
            encoded = Encoded(output.characters, mask, output.pooled, output.units[:, 0])
        else:
            encoded = self._of_words(codepoints, mask, unit_ends)
        return tuple(getattr(encoded, name) for name in self.output_names)

    def _of_words(self, codepoints_BC: Tensor, mask_BC: Tensor, unit_ends_BU: Tensor) -> Encoded:
        """As of a `WordEncoder`: the vector of a character is that of its word, and stands at its first byte."""
        down, units_BUD = self.encoder.encode(codepoints_BC, mask_BC, unit_ends_BU=unit_ends_BU)
        characters_BCD = gather_rows(units_BUD, down.grouping.unit_BC.expand(len(units_BUD), -1))
        begins_BC = mask_BC & ((codepoints_BC < 0x80) | (codepoints_BC >= 0xC0))  # else a later byte of a character
        words_BUD = units_BUD * down.valid_BU[..., None]
        pooled_BD = self.encoder.pool(units_BUD)
        return Encoded(characters_BCD, begins_BC, pooled_BD, words_BUD[:, 0], words_BUD, down.valid_BU)


def reads_words(encoder: Encoder) -> bool:
    """Whether the text says which units there are: words of bytes."""
    return encoder.config.downsampler.bytes_per_word is not None


def write_graph(graph: Graph, inputs: Mapping[str, Tensor], path: Path) -> None:
    """Write the graph of ONNX, with dynamic batch, length and number of words.

    Args:
        graph: what it is to compute.
        inputs: by their names, examples to trace it with, two at least, so that no size is 1.
        path: the file; weights above 2 GB are written beside it.

    Raises:
        UserError: packages are missing; the message has the remedy.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        raise UserError(f"{' and '.join(missing)} {be} not installed; run {INSTALL}")
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            kwargs=dict(inputs),
            dynamo=True,
            verbose=False,
            input_names=graph.input_names,
            output_names=graph.output_names,
            dynamic_shapes={
                name: {0: "batch", 1: "words" if name == "unit_ends" else "length"} for name in graph.input_names
            },
        )
        assert program is not None
        program.save(path)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says of itself, such as packages for pictures that it misses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


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


REMEDY = "use `tokenfree predict` or load_finetuned"


class TaskGraph(Graph):
    """What the head of a task gives of inputs that are framed as the task has them.

    Attributes:
        pipeline: the hub's name of what it does.
        texts: what an input is made of, each with SEP behind it; of two, the second is segment 1.
    """

    pipeline: str
    texts: tuple[str, ...] = ("text",)

    def __init__(self, task: DownstreamTask, model: Task) -> None:
        shapes = self.shapes(model.head, "words" if reads_words(model.encoder) else "length")
        super().__init__(model.encoder, shapes, has_segments=len(self.texts) > 1)
        self.task = task
        self.head: Any = model.head

    @property
    def labels(self) -> Sequence[str]:
        """The classes in the order of the logits; none where there are no classes."""
        return getattr(self.task, "labels", ())

    @staticmethod
    @abstractmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """The shapes of the outputs by name; `vectors` is the name of how many vectors an input has."""

    @abstractmethod
    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """The outputs in the order of their names."""

    def forward(
        self, codepoints: Tensor, mask: Tensor, segments: Tensor | None = None, unit_ends: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The outputs in the order of their names, for int64 codepoints [B, C], bool mask alike, int64 segments alike
        and int64 ends [B, U].
        """
        given = {"codepoints": codepoints, "mask": mask, "segments": segments, "unit_ends": unit_ends}
        return self.outputs({name: tensor for name, tensor in given.items() if tensor is not None})


class TextGraph(TaskGraph):
    """`logits` [B, K] of texts; nothing is upsampled."""

    pipeline = "text-classification"

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"logits": ["batch", head.classifier.output.out_features]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`."""
        names = [name for name in ("codepoints", "mask", "segments") if name in batch]
        padded = dict(zip(names, self.encoder.padded(*(batch[name] for name in names)), strict=True))
        return (self.head.outputs(self.encoder, batch | padded)["logits"],)


class PairGraph(TextGraph):
    """The same of pairs of texts that are read together."""

    texts = ("first", "second")


class TagGraph(TaskGraph):
    """`logits` [B, P, K] of all vectors, of which the task reads those of words."""

    pipeline = "token-classification"

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"logits": ["batch", vectors, head.classifier.output.out_features]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`."""
        vectors_BPD, _ = encode_all(self.encoder, batch)
        return (self.head.classifier(vectors_BPD),)


class AnswerGraph(TaskGraph):
    """`start_logits` and `end_logits` [B, P] of all vectors: where an answer begins and ends."""

    pipeline = "question-answering"
    texts = ("question", "context")

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"start_logits": ["batch", vectors], "end_logits": ["batch", vectors]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`; CLS, the question and its SEP are global, as in `WindowReader`."""
        batch["global"] = batch["mask"] & (batch["segments"] == 0)
        found = self.head.outputs(self.encoder, batch)
        return found["start"], found["end"]


GRAPHS: dict[type, type[TaskGraph]] = {
    classification.Config: TextGraph,
    pairs.Config: PairGraph,
    tagging.Config: TagGraph,
    qa_squad.Config: AnswerGraph,
}


def task_graph(task: DownstreamTask, model: Task) -> TaskGraph:
    """The graph of a fine-tuned model.

    Args:
        task: fitted.
        model: the encoder with the head of the task.

    Raises:
        UserError: there is none for this task, in one line that names the setting.
    """
    if type(task) not in GRAPHS:
        known = ", ".join(config.name for config in GRAPHS)
        raise UserError(f"task.name: there are graphs of {known}, and none of {task.name}; {REMEDY}")
    if isinstance(task, pairs.Config) and task.encode == "apart":
        raise UserError(
            f"task.encode: a graph reads both texts of a pair together, not apart; {REMEDY}, or fine-tune with together"
        )
    return GRAPHS[type(task)](task, model)


CHARACTERS = """\
```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("this folder/model.onnx")
texts = ["any text", "日本語"]
rows = [[0xE000, *map(ord, text), 0xE001] for text in texts]  # CLS, codepoints, SEP
length = min(-(-(max(map(len, rows)) + {spare}) // {whole}) * {whole}, {length})
codepoints = np.zeros((len(rows), length), dtype=np.int64)
mask = np.zeros(codepoints.shape, dtype=bool)
for number, row in enumerate(rows):
    codepoints[number, : len(row)], mask[number, : len(row)] = row, True
inputs = {{"codepoints": codepoints, "mask": mask}}
characters, mean = session.run(["characters", "mean"], inputs)
```

The model needs padding after a text: {spare} positions at least, to a multiple of {whole} or to {length}, its longest
input in training. So padded, a text has the same vectors as `tokenfree.load_encoder` gives it, whatever its neighbours
are. Texts of up to {characters} characters fit."""
WORD_ARRAYS = """\
length, units = max(len(b"".join(row)) for row in rows), max(map(len, rows))
codepoints = np.zeros((len(rows), length), dtype=np.int64)
unit_ends = np.zeros((len(rows), units), dtype=np.int64)
for number, row in enumerate(rows):
    joined = b"".join(row)
    codepoints[number, : len(joined)] = list(joined)
    unit_ends[number] = len(joined)  # also where the words beyond the last end
    unit_ends[number, : len(row)] = np.cumsum([len(word) for word in row])
mask = np.arange(length) < unit_ends[:, -1:]
inputs = {"codepoints": codepoints, "mask": mask, "unit_ends": unit_ends}"""
WORDS = """\
```python
import numpy as np
import onnxruntime
{split}
{arrays}
session = onnxruntime.InferenceSession("this folder/model.onnx")
words, mean = session.run(["words", "mean"], inputs)
```

{said} White space is in none. Texts of up to {num_words} words in {num_bytes} bytes fit, CLS and SEP included."""
BY_RULES = """\
from tokenfree.preprocess.text.words import word_spans

rows = []
for text in ["any text", "日本語"]:
    spans = zip(*word_spans(text), strict=True)
    words = [text.encode()[start:end] for start, end in spans]
    rows.append([b"\\x02", *words, b"\\x03"])  # CLS, words, SEP"""
BY_SUBWORDS = """
rows = [[b"\\x02", b"an", b"y", b"text", b"\\x03"]]  # CLS, subwords, SEP"""
SUBWORDS = """\
```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("this folder/model.onnx")
ids = np.array([[4, 8, 15, 16]])  # of subwords, CLS first and SEP last; 0 behind a shorter text, where `mask` is false
inputs = {{"codepoints": ids, "mask": ids > 0}}
characters, mean = session.run(["characters", "mean"], inputs)
```

It reads ids of the subwords of its training data, up to {length}, whose tokenizer is not in this folder. In what
tokenfree has trained, CLS, SEP and MASK have the three ids behind those of the vocabulary."""
TASK = f"""\
```python
import onnxruntime

session = onnxruntime.InferenceSession("this folder/model.onnx")
outputs = session.run(None, inputs)  # NumPy arrays by the names below
```

config.json says how to make inputs. `framing` has the parts of an input in order, and `special` the symbols among them.
`pad` has the padding: at least `spare` positions after a text, to a multiple of `group` and `block`, or to `length`.
So padded, the logits are those of tokenfree, whatever else is in the batch. `labels` are in the order of the logits.
Longer texts, and what logits say of them, are not in the graph: {REMEDY}."""
MEANINGS = {
    "codepoints": "the text with CLS and SEP, and 0 as padding",
    "mask": "true for what is not padding",
    "unit_ends": "the bytes up to which each word reaches",
    "characters": "the vectors Y of all positions",
    "words": "the vectors of words, CLS and SEP included",
    "word_mask": "true for what is a word",
    "cls": "the unit of CLS",
    "mean": "the mean of the vectors of a text's characters",
    "cls_max": "`cls`, then the largest values over CLS and the characters",
    "pooled": "tanh of a dense layer on `cls`, which training taught whether two parts belong together",
    "segments": "1 for the second text and the SEP behind it, else 0",
    "logits": "of the labels in config.json, in their order; or the number",
    "start_logits": "where the answer begins",
    "end_logits": "where it ends: its last position",
}


def graph_usage(snippet: str, facts: Mapping[str, Any], checked: Checked | None) -> str:
    """How to run a graph, in Markdown.

    Args:
        snippet: a program that runs it, and what has to be known of it.
        facts: the contents of config.json.
        checked: what its check found, if there was one.
    """
    tensors = [
        f"| {kind} `{name}` | {tensor['type']} {_shape(tensor['shape'])} | {MEANINGS[name]} |"
        for kind in ("inputs", "outputs")
        for name, tensor in facts[kind].items()
    ]
    told = "The graph was not checked: onnxruntime was not installed."
    if checked is not None:
        told = (
            f"On {checked.inputs} inputs of 1 to {facts['length']} positions, outputs by onnxruntime differed from "
            f"those by PyTorch by {checked.largest_difference:.1e} at most."
        )
    return "\n\n".join(
        [
            snippet,
            "## Inputs and outputs",
            "\n".join(["| | | |", "|---|---|---|", *tensors]),
            told,
        ]
    )


def encoder_snippet(graph: EncoderGraph, encoder: TextEncoder, facts: Mapping[str, Any]) -> str:
    """A program that encodes texts, and what has to be known of it.

    Args:
        graph: what it computes.
        encoder: the encoder for texts that it is beside.
        facts: the contents of config.json.
    """
    if graph.reads_words:
        by_rules = facts["words"] == "rules"
        return WORDS.format(
            split=BY_RULES if by_rules else BY_SUBWORDS,
            arrays=WORD_ARRAYS,
            said="Words are those of `word_spans`." if by_rules else "Words are the subwords of its training data.",
            num_words=facts["inputs"]["unit_ends"]["most"],
            num_bytes=facts["length"],
        )
    if facts["symbols"] == "subwords":
        return SUBWORDS.format(length=facts["length"])
    return CHARACTERS.format(
        spare=encoder.spare,
        whole=math.lcm(encoder.group, encoder.block or 1),  # whole blocks of local attention, too
        length=encoder.length,
        characters=encoder.max_characters,
    )


def _shape(shape: list[Any]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def facts_of(
    graph: Graph, encoder: TextEncoder, *, step: int, subwords: Mapping[str, Any], words: str
) -> dict[str, Any]:
    """The contents of config.json.

    Args:
        graph: that is exported.
        encoder: the encoder for texts that it is beside.
        step: of the checkpoint.
        subwords: of a model that reads subwords, what is known of their vocabulary.
        words: of a model that reads words, which: those by `rules`, or `subwords`.
    """
    config = graph.encoder.config
    symbols = config.embedder.symbols
    inputs = {name: {"type": "int64", "shape": ["batch", "length"]} for name in graph.input_names}
    inputs["mask"]["type"] = "bool"
    outputs = {
        name: {"type": "bool" if name == "word_mask" else "float32", "shape": shape}
        for name, shape in graph.output_shapes.items()
    }
    facts: dict[str, Any] = {
        "step": step,
        "symbols": symbols,
        "length": encoder.length,
        "inputs": inputs,
        "outputs": outputs,
    }
    if isinstance(graph, TaskGraph):
        facts |= _of_task(graph)
    if symbols == "characters":
        facts["special"] = specials.CHARACTERS._asdict()
        facts["max_characters"] = encoder.max_characters + 1 - num_texts(graph)
    elif symbols == "bytes":
        facts["special"] = specials.BYTES._asdict()
    else:
        facts |= subwords
    if graph.reads_words:
        facts["words"] = words
        inputs["unit_ends"] |= {
            "shape": ["batch", "words"],
            "most": encoder.length // config.downsampler.bytes_per_word,
        }
    elif symbols != "subwords":
        facts["pad"] = {
            "group": encoder.group,
            "spare": encoder.spare,
            "reach": encoder.reach,
            "block": encoder.block,
        }
    return {**facts, "model": to_mapping(config)}


def num_texts(graph: Graph) -> int:
    """How many texts an input is made of."""
    return len(graph.texts) if isinstance(graph, TaskGraph) else 1


def _of_task(graph: TaskGraph) -> dict[str, Any]:
    """The task, its labels in the order of logits or that a number is found, and what an input is made of."""
    found: dict[str, Any] = {"task": graph.task.name}
    if graph.labels:
        found["labels"] = list(graph.labels)
    elif graph.pipeline == "text-classification":
        found["regression"] = True
    input_of = ["cls", *(name for text in graph.texts for name in (text, "sep"))]
    segments = [0, *(number for number in range(len(graph.texts)) for _ in range(2))]
    return found | {"framing": {"input": input_of, "segments": segments}}


GRAPH, FACTS = "model.onnx", "config.json"


class _Model(NamedTuple):
    """What is exported of a run."""

    graph: Graph
    length: int  # of the longest input in training
    facts: dict[str, Any]
    snippet: str
    card: Callable[..., str]  # of how it is used, as `usage`


class ExportedGraph(NamedTuple):
    """What was exported."""

    checked: Checked | None  # how far onnxruntime's outputs are from PyTorch's; None: it is not installed
    step: int  # of the checkpoint


def export_graph(
    run: str | Path, folder: str | Path, *, step: int | None = None, trust_code: bool = False
) -> ExportedGraph:
    """Write the encoder of a run as a new `folder` with a graph of ONNX for any batch and any length; of a fine-tuned
    run, the encoder with the head of its task.

    Args:
        run: its path or address.
        folder: new or empty.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run, there is no graph of its task, packages are missing, the folder holds files
            already, or the check fails.
        JobError: the checkpoint is damaged.
    """
    model = (_finetuned if is_finetuned(run) else _pretrained)(run, step, trust_code)
    with new_folder(folder) as target:
        with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}_", dir=target) as made:
            path = Path(made) / GRAPH
            write_graph(model.graph, example(model.graph, 3, model.length, np.random.default_rng(0)), path)
            checked = check_graph(model.graph, path, model.length) if can_check() else None
            for file in Path(made).iterdir():  # weights above 2 GB are a file of their own
                os.replace(file, target / file.name)
        write_atomically(target / CARD, model.card(usage=graph_usage(model.snippet, model.facts, checked)))
        write_atomically(target / FACTS, json.dumps(model.facts, indent=2) + "\n")
    return ExportedGraph(checked, model.facts["step"])


def _pretrained(run: str | Path, step: int | None, trust_code: bool) -> _Model:
    encoder = load_encoder(run, step=step, trust_code=trust_code)
    graph = EncoderGraph(encoder.encoder, pooled_is_trained=encoder.pooled_is_trained)
    assert encoder.checkpoint is not None, "it is of a run"
    checkpoint, config = encoder.checkpoint.state, read_config(run, trust_code=trust_code)
    words = "rules" if config.recipe.objective.gives_words else "subwords"
    facts = facts_of(graph, encoder, step=checkpoint.step, subwords={"vocabulary": checkpoint.vocabulary}, words=words)
    card = functools.partial(card_of_run, run, config, checkpoint, kind="ONNX", library="onnx")
    return _Model(graph, encoder.length, facts, encoder_snippet(graph, encoder, facts), card)


def _finetuned(run: str | Path, step: int | None, trust_code: bool) -> _Model:
    found, config = load_finetuned(run, step=step, trust_code=trust_code), read_finetuned(run, trust_code=trust_code)
    graph = task_graph(found.task, found.model)
    encoder = TextEncoder(graph.encoder, length=found.recipe.train.length)
    vocabulary, subwords = load_vocabulary(run_at(run).name), dict[str, Any]()
    if vocabulary is not None:
        special = {"pad": 0, "cls": vocabulary.size, "sep": vocabulary.size + 1, "mask": vocabulary.size + 2}
        subwords = {"vocabulary": vocabulary.sha256, "special": special}
    facts = facts_of(graph, encoder, step=found.step, subwords=subwords, words="rules")
    card = functools.partial(
        card_of_task,
        run,
        config,
        found.step,
        kind="ONNX",
        library="onnx",
        pipeline=graph.pipeline,
        labels=graph.labels,
    )
    return _Model(graph, encoder.length, facts, TASK, card)
