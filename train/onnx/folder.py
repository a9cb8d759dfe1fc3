"""A run's encoder as a folder for onnxruntime: the graph, its facts, and how to run it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.preprocess.common.settings import to_mapping
from tokenfree.train.batches import framing
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.model_card import CARD, card_of_run
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder
from tokenfree.train.model.embedders import word_bytes
from tokenfree.train.onnx.card import graph_usage
from tokenfree.train.onnx.check import Checked, can_check, check_graph, example
from tokenfree.train.onnx.graph import EncoderGraph, write_graph
from tokenfree.train.runs.locate import newest_checkpoint
from tokenfree.train.runs.run_config import is_finetuned, read_config

GRAPH, FACTS = "model.onnx", "config.json"


def export_graph(run: str | Path, folder: str | Path, *, trust_code: bool = False) -> Checked | None:
    """Write the newest checkpoint of `run` as a new `folder` with a graph of ONNX for any batch and any length.

    Args:
        run: its path or address.
        folder: new or empty.
        trust_code: run the code outside tokenfree that the run names.

    Returns:
        How far onnxruntime's outputs are from PyTorch's; None where onnxruntime is not installed.

    Raises:
        UserError: there is no such run, it is one of fine-tuning, packages are missing, the folder holds files already,
            or the check fails.
    """
    if is_finetuned(run):
        raise UserError(
            f"{run} is a run of fine-tuning, and graphs are of encoders alone; export it to huggingface, or give a run "
            "of pretraining"
        )
    encoder, folder = load_encoder(run, trust_code=trust_code), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new or empty folder")
    graph = EncoderGraph(encoder.encoder, pooled_is_trained=encoder.pooled_is_trained)
    checkpoint = newest_checkpoint(run).state
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made:
        path = Path(made) / GRAPH
        write_graph(graph, example(graph, 3, encoder.length, np.random.default_rng(0)), path)
        checked = check_graph(graph, path, encoder.length) if can_check() else None
        folder.mkdir(exist_ok=True)
        for file in Path(made).iterdir():  # weights above 2 GB are a file of their own
            os.replace(file, folder / file.name)
    config = read_config(run, trust_code=trust_code)
    facts = _facts(config.recipe, graph, encoder, checkpoint.vocabulary)
    usage = graph_usage(graph, encoder, facts, checked)
    card = card_of_run(run, config, checkpoint, kind="ONNX", library="onnx", usage=usage)
    write_atomically(folder / CARD, card)
    write_atomically(folder / FACTS, json.dumps(facts, indent=2) + "\n")
    return checked


def _facts(recipe: PretrainRecipe, graph: EncoderGraph, encoder: TextEncoder, vocabulary: str | None) -> dict[str, Any]:
    """What a program has to know that makes inputs of texts."""
    config = graph.encoder.config
    symbols, width = config.embedder.symbols, config.width
    inputs = {name: {"type": "int64", "shape": ["batch", "length"]} for name in graph.input_names}
    inputs["mask"]["type"] = "bool"
    shapes = {
        "characters": ["batch", "length", width],
        "words": ["batch", "words", width],
        "word_mask": ["batch", "words"],
        "cls_max": ["batch", 2 * width],
    }
    outputs = {
        name: {"type": "bool" if name == "word_mask" else "float32", "shape": shapes.get(name, ["batch", width])}
        for name in graph.output_names
    }
    facts: dict[str, Any] = {"symbols": symbols, "length": encoder.length, "inputs": inputs, "outputs": outputs}
    if symbols == "characters":
        facts["special"] = {"pad": framing.PAD, "cls": framing.CLS, "sep": framing.SEP, "mask": framing.MASK}
        facts["max_characters"] = encoder.max_characters
        facts["pad"] = {
            "group": encoder.group,
            "spare": encoder.spare,
            "reach": encoder.reach,
            "block": encoder.block,
        }
    elif symbols == "bytes":
        facts["special"] = {name.lower(): getattr(word_bytes, name) for name in ("PAD", "CLS", "SEP", "MASK")}
    else:
        facts["vocabulary"] = vocabulary
    if graph.reads_words:
        facts["words"] = "rules" if recipe.objective.gives_words else "subwords"
        inputs["unit_ends"] |= {
            "shape": ["batch", "words"],
            "most": encoder.length // config.downsampler.bytes_per_word,
        }
    return {**facts, "model": to_mapping(config)}
