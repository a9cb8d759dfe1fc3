"""Fine-tuned runs of question answering to the classes of transformers: the same logits of starts and ends."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.huggingface.exported_folder.test_finetuned import ALPHABET, KINDS, large_weights, recipe
from tokenfree import load_finetuned
from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.exported_folder import folder_head
from tokenfree.train.huggingface.folders import export_run
from tokenfree.train.loop.step import on_device
from tokenfree.train.tasks.inputs import text_inputs

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

QUESTION = "who?"
LENGTHS = [*range(1, 16), *range(111, 126)]  # with the question, up to 137 positions of 144
TASK = {"name": "qa_squad", "max_question": 20, "stride": 16, "max_answer": 10}


@pytest.mark.parametrize("model", KINDS)
def test_the_logits_are_the_same(
    model: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    answers = [{"text": "Ana", "answer_start": 0}]
    asked = [{"id": str(number), "question": QUESTION, "answers": answers} for number in range(8)]
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ana is here.", "qas": asked}]}]}))
    made, run, out = recipe(TASK, model), str(tmp_path / "run"), tmp_path / "out"
    vocabulary = f"{corpus}/vocabulary/subwords.model" if model == "subwords" else None
    begin = large_weights(tmp_path / "begin", made)
    finetune(made, {"train": str(file), "dev": str(file)}, run, init_from=begin, vocabulary=vocabulary)
    name = f"{KINDS[model]}ForQuestionAnswering"
    assert export_run(run, out).reader == name
    port, told = getattr(transformers, name).from_pretrained(out, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    found, draw = load_finetuned(run), random.Random(0)
    contexts = ["".join(draw.choices(ALPHABET.replace(" ", ""), k=length)) for length in LENGTHS]
    read = text_inputs(
        found.recipe.model, found.recipe.train.length, load_vocabulary(run) if vocabulary else None
    )
    collator = found.task.collator(read, 0)
    head: Any = found.model.head
    examples = [found.task.raw(context, f"{QUESTION}\t{context}") for context in contexts]
    items = collator.items(examples, training=False)
    assert len(items) == len(contexts)  # a window each
    values, differences = list[float](), list[float]()
    tokenizer: Any = None
    if model == "canine":
        tokenizer = transformers.AutoTokenizer.from_pretrained(out, trust_remote_code=True)
    for item, context in zip(items, contexts, strict=True):
        batch = on_device(collator([item], np.zeros(1, dtype=np.int64)), torch.device("cpu"))
        if tokenizer is None:
            inputs: Any = {"input_ids": batch["codepoints"], "attention_mask": batch["mask"].long()}
            inputs["token_type_ids"] = batch["segments"]
        else:
            inputs = tokenizer(QUESTION, context, return_tensors="pt")
        with torch.no_grad():
            ours, theirs = head.outputs(found.model.encoder, batch), port.eval()(**inputs)
        real = int(batch["mask"].sum())
        for mine, other in ((ours["start"], theirs.start_logits), (ours["end"], theirs.end_logits)):
            values += mine[0, :real].tolist()
            differences.append(float((mine[0, :real] - other[0, :real]).abs().max()))
    assert np.std(values) > 1e-2
    assert max(differences) < 1e-5
    if model == "canine":
        assert '["first text"], ["second text"]' in (out / "README.md").read_text()


def test_types_of_answers_have_no_equal() -> None:
    made = recipe({**TASK, "name": "qa_tydi"})
    with pytest.raises(UserError, match="qa_tydi with these settings has a head that cannot be exported"):
        folder_head(made.task, made.task.build(made.model))
