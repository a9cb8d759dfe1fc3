"""README.md of an exported graph: what goes in, what comes out, and how to run it with onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.onnx.check import Checked
from tokenfree.train.onnx.graph import EncoderGraph
from tokenfree.train.onnx.task_graph import REMEDY

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
