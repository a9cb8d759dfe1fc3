"""The files of a fine-tuning run, and a fingerprint of what stands in them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import get_args

from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.tasks.base import Split
from tokenfree.train.tasks.examples.files import read_bytes
from tokenfree.train.tasks.examples.huggingface import SCHEME
from tokenfree.train.tasks.examples.labelled_lines import parallel_paths

SPLITS: tuple[Split, ...] = get_args(Split)


@dataclasses.dataclass(frozen=True)
class TaskFiles:
    """What every worker is given to read its examples from."""

    paths: Mapping[Split, str]  # paths or addresses; those of splits that the run has
    content: str  # see `content_of`
    model: bytes | None = None  # SentencePiece, for models of subwords

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Of subwords."""
        return None if self.model is None else Vocabulary.load(self.model)


def content_of(paths: Mapping[Split, str]) -> str:
    """32 hex digits that change with what the files of any split hold, wherever they lie.

    Of datasets of the hub it is their name that counts.

    Raises:
        UserError: a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for split in SPLITS:
        if split in paths:
            digest.update(f"\n{split} ".encode())
            for part in parallel_paths(paths[split]) or (paths[split],):
                content = part.encode() if part.startswith(SCHEME) else read_bytes(part)
                digest.update(hashlib.blake2b(content).digest())
    return digest.hexdigest()
