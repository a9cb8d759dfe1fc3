"""The peer of whole_job.py: the same job with Hugging Face `datasets` and mwparserfromhell.

Pages are read by an XML parser, cleaned by `strip_code`, normalised to NFC, and deduplicated. Sentences are
found by a regular expression, and windows consist of whole sentences. Each batch of windows is an Arrow table
of NumPy columns (peer_columns.py). `save_to_disk` writes them. There are no checkpoints, no failed pages, no
shuffle and no checksums.
"""

from __future__ import annotations

import bz2
import hashlib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import datasets
import mwparserfromhell
import pyarrow as pa
import sentencepiece

from benchmarks.preprocess.peer_columns import cut, peer_columns, peer_subwords

MIN_CHARACTERS = 64


def preprocess(dump: str, model: bytes, output: str, workers: int, max_characters: int) -> int:
    """Write the windows of `dump` to `output` and return the number of characters of all documents."""
    datasets.disable_progress_bars()
    datasets.disable_caching()
    processes = workers if workers > 1 else None
    pages = datasets.Dataset.from_list(list(read_pages(Path(dump))))
    documents = pages.map(clean_page, remove_columns=["wikitext"], num_proc=processes)
    seen: set[bytes] = set()
    kept = documents.filter(lambda row: is_new(row, seen))
    windows = kept.map(
        build_windows,
        batched=True,
        batch_size=100,
        remove_columns=kept.column_names,
        fn_kwargs={"model": model, "max_characters": max_characters},
        num_proc=processes,
    )
    windows.save_to_disk(output)
    return sum(len(text) for text in kept["text"])


def read_pages(dump: Path) -> Iterator[dict[str, str]]:
    """Yield the articles of a dump, without redirects and other namespaces."""
    with bz2.open(dump, "rb") if dump.suffix == ".bz2" else dump.open("rb") as file:
        for _, element in ElementTree.iterparse(file):
            if not element.tag.endswith("}page"):
                continue
            fields = {child.tag.rpartition("}")[2]: child for child in element.iter()}
            if "redirect" not in fields and fields["ns"].text == "0":
                title, text = fields["title"].text or "", fields["text"].text or ""
                yield {"document": f"enwiki:{element.findtext('{*}id')}", "title": title, "wikitext": text}
            element.clear()


def clean_page(row: dict[str, str]) -> dict[str, str]:
    """Return the text of an article."""
    text = str(mwparserfromhell.parse(row["wikitext"]).strip_code())
    return {"text": unicodedata.normalize("NFC", text).strip()}


def is_new(row: dict[str, str], seen: set[bytes]) -> bool:
    """Return True if the text is long enough and occurs for the first time."""
    digest = hashlib.blake2b(row["text"].encode(), digest_size=16).digest()
    fresh = len(row["text"]) >= MIN_CHARACTERS and digest not in seen
    seen.add(digest)
    return fresh


def build_windows(rows: dict[str, list[str]], model: bytes, max_characters: int) -> pa.Table:
    """Return all columns of the windows of a batch of documents."""
    windows = [
        (document, *window)
        for document, text in zip(rows["document"], rows["text"], strict=True)
        for window in cut(text, max_characters)
    ]
    documents, texts, sentences = zip(*windows, strict=True)
    columns: dict[str, Any] = {"document": documents, "language": ["en"] * len(texts), "text": texts}
    columns["sentence_starts"] = pa.array(sentences, pa.list_(pa.uint16()))
    return pa.table(columns | peer_columns(texts, peer_subwords(load_model(model), texts)))


_processors: dict[bytes, sentencepiece.SentencePieceProcessor] = {}


def load_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Return the SentencePiece processor of this process. It cannot be sent between processes."""
    key = hashlib.sha256(model).digest()
    if key not in _processors:
        _processors[key] = sentencepiece.SentencePieceProcessor(model_proto=model)
    return _processors[key]
