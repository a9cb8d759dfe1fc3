"""Questions of TyDi QA, made up, in its native form, and how models read them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs import CharacterInputs, TextInputs
from tokenfree.train.tasks.qa_tydi import Config, TydiExample
from tokenfree.train.tasks.questions import Readable, readable

CHARACTERS: dict[str, Any] = {
    "width": 16,
    "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 512},
    "trunk": {"layers": 1, "heads": 2, "inner_width": 32},
}
Write = Callable[..., str]
NONE = (-1, -1)


def annotation(passage: int = -1, span: tuple[int, int] = NONE, yes_no: str = "NONE") -> dict[str, Any]:
    return {
        "annotation_id": 1,
        "passage_answer": {"candidate_index": passage},
        "minimal_answer": {"plaintext_start_byte": span[0], "plaintext_end_byte": span[1]},
        "yes_no_answer": yes_no,
    }


def record(passages: Sequence[str], **fields: Any) -> dict[str, Any]:
    """A line of a file whose article is these passages, with a line break between."""
    candidates, begin = [], 0
    for passage in passages:
        size = len(passage.encode())
        candidates.append({"plaintext_start_byte": begin, "plaintext_end_byte": begin + size})
        begin += size + 1
    return {
        "example_id": 7,
        "language": "finnish",
        "question_text": "Mikä?",
        "document_title": "title",
        "document_url": "url",
        "document_plaintext": "\n".join(passages),
        "passage_answer_candidates": candidates,
        "annotations": [annotation()],
    } | fields


def characters(length: int) -> TextInputs:
    """The inputs of a model of characters."""
    return CharacterInputs(build(ModelConfig, CHARACTERS, source="test"), length)


def article_of(example: TydiExample, most: int = 45) -> Readable:
    """What a model of characters reads of an article."""
    return readable(Config(max_passages=most).passages(example), characters(512), markers=True)


def text_of(codepoints: np.ndarray) -> str:
    return "".join(map(chr, codepoints.tolist()))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines, each a record or a text as it is, to a file `name`."""

    def make(*lines: Any, name: str = "dev.jsonl") -> str:
        path = tmp_path / name
        texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return str(path)

    return make
