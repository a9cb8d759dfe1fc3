"""A fine-tuned run as a folder for the class of transformers that does its task."""

from __future__ import annotations

from pathlib import Path

from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.finetuning.finetuned import load_finetuned
from tokenfree.train.huggingface.exported_folder import Exported, new_folder, port_model, tokenizer_name, write_folder
from tokenfree.train.huggingface.task_card import task_card
from tokenfree.train.huggingface.task_heads import port_head, with_head
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.runs.locate import run_at
from tokenfree.train.runs.run_config import read_finetuned
from tokenfree.train.tasks.base import TaskHead


def export_finetuned(
    run: str | Path, folder: str | Path, *, step: int | None = None, trust_code: bool = False
) -> Exported:
    """Write a fine-tuning `run` with its head as a new `folder` for `from_pretrained`.

    Args:
        run: its path or address.
        folder: new or empty.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run, transformers has no class with its head or its encoder, or the folder holds
            files already.
        JobError: the checkpoint is damaged.
    """
    found = load_finetuned(run, step=step, trust_code=trust_code)
    assert isinstance(found.model.head, TaskHead), "the model was built by a task"
    head = port_head(found.task, found.model.head)
    vocabulary = load_vocabulary(run_at(run).name)
    state, fields = port_model(found.model.encoder, None if vocabulary is None else vocabulary.sha256)
    state, fields = with_head(state, fields, head)
    encoder = TextEncoder(found.model.encoder, length=found.recipe.train.length)
    config = read_finetuned(run, trust_code=trust_code)
    card = task_card(run, config, found.step, encoder, head, fields, tokenizer_name(fields))
    with new_folder(folder) as made:
        write_folder(made, state, fields, encoder, card)
    return Exported(fields["architectures"][0], found.step)
