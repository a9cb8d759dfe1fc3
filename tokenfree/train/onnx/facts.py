"""config.json of an exported graph: what a program has to know that makes inputs of texts, and reads the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenfree.preprocess.common.settings import to_mapping
from tokenfree.train.batches import framing
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.embedders import word_bytes
from tokenfree.train.onnx.graph import Graph
from tokenfree.train.onnx.task_graph import TaskGraph


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
        facts["special"] = {"pad": framing.PAD, "cls": framing.CLS, "sep": framing.SEP, "mask": framing.MASK}
        facts["max_characters"] = encoder.max_characters + 1 - num_texts(graph)
    elif symbols == "bytes":
        facts["special"] = {name.lower(): getattr(word_bytes, name) for name in ("PAD", "CLS", "SEP", "MASK")}
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
