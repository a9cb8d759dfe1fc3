"""A folder of transformers as it is written: the model that it is of, its weights, settings, tokenizer and card."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import LOCK, claimed
from tokenfree.train.huggingface import bert, canine
from tokenfree.train.huggingface.model_card import CARD
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.runs.checkpoints import save_tensors

KINDS = {"canine": canine, "bert": bert}
SAFETENSORS = "model.safetensors"
TOKENIZER = Path(__file__).with_name("tokenization_tokenfree.py")
VOCABULARY = "tokenfree_vocabulary"  # a field of config.json that we add: the SHA-256 of the data's vocabulary


class Exported(NamedTuple):
    """What was exported."""

    reader: str  # the class of transformers that reads it
    step: int  # of the checkpoint


@contextlib.contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Hold a folder that is new or empty against other commands; yields its path.

    Raises:
        UserError: there is something, or another command writes into it.
    """
    folder = Path(folder)
    if not (folder / LOCK).exists():  # else another command writes into it, or was killed
        _refuse_files(folder)
    with claimed(Storage.at(str(folder))):
        _refuse_files(folder)
        yield folder


def _refuse_files(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new or empty folder")


def port_model(encoder: Encoder, vocabulary: str | None) -> tuple[StateDict, dict[str, Any]]:
    """The weights of `encoder` under the names of its model in transformers, and the fields of that one's config.

    Args:
        encoder: of the run.
        vocabulary: SHA-256 of the vocabulary whose subwords it reads, if it does.

    Raises:
        UserError: transformers has no model like it.
    """
    config = encoder.config
    kind = "bert" if config.embedder.name == "subword_table" else "canine"
    state, fields = KINDS[kind].to_huggingface(encoder, config)
    return state, fields | ({VOCABULARY: vocabulary} if kind == "bert" else {})


def tokenizer_name(fields: Mapping[str, Any]) -> str | None:
    """The file of the tokenizer of a model with these fields; None where it comes without."""
    return TOKENIZER.name if fields["model_type"] == "canine" else None


def write_folder(
    folder: Path, state: Mapping[str, Any], fields: Mapping[str, Any], encoder: TextEncoder, card: str
) -> None:
    """Write all files into a folder that `new_folder` gave; config.json, without which it is no model, comes last."""
    save_tensors(state, folder / SAFETENSORS, {"format": "pt"})
    if tokenizer_name(fields) is not None:
        _write_tokenizer(folder, encoder)
    write_atomically(folder / CARD, card)
    write_atomically(folder / "config.json", json.dumps(fields, indent=2) + "\n")


def _write_tokenizer(folder: Path, encoder: TextEncoder) -> None:
    """The tokenizer that pads, for `trust_remote_code=True`, and that of the port without."""
    fields = {
        "tokenizer_class": "CanineTokenizer",
        "model_max_length": encoder.length,
        "pad_group": encoder.group,
        "pad_spare": encoder.spare,
        "pad_reach": encoder.reach,
        "pad_block": encoder.block,
        "auto_map": {"AutoTokenizer": [f"{TOKENIZER.stem}.PaddedCanineTokenizer", None]},
    }
    write_atomically(folder / "tokenizer_config.json", json.dumps(fields, indent=2) + "\n")
    write_atomically(folder / TOKENIZER.name, TOKENIZER.read_text(encoding="utf-8"))
