"""A run as a folder for onnxruntime: the graph of its encoder or fine-tuned model, its facts, and how to run it."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenfree.preprocess.common.local_files import TEMPORARY, write_atomically
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.finetuning.finetuned import load_finetuned
from tokenfree.train.huggingface.exported_folder import new_folder
from tokenfree.train.huggingface.model_card import CARD, card_of_run
from tokenfree.train.huggingface.task_card import card_of_task
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder
from tokenfree.train.onnx.card import TASK, encoder_snippet, graph_usage
from tokenfree.train.onnx.check import Checked, can_check, check_graph, example
from tokenfree.train.onnx.facts import facts_of
from tokenfree.train.onnx.graph import EncoderGraph, Graph, write_graph
from tokenfree.train.onnx.task_graph import task_graph
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.run_config import is_finetuned, read_config, read_finetuned

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
