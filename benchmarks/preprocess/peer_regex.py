"""The fast peer of whole_job.py: the same job with a regular expression, wikiextractor, NumPy and pyarrow.

Pages are found by a regular expression in blocks of the dump and cleaned by wikiextractor without templates. Texts
are normalised to NFC and deduplicated. Windows and all columns but the subwords are those of the other peer. The
offsets of subwords are sums of the lengths of pieces. Each batch of windows is written to an Arrow stream. There
are no checkpoints, no failed pages, no shuffle and no checksums. wiki_peers.py says how to get wikiextractor.
"""

from __future__ import annotations

import bz2
import hashlib
import html
import importlib
import logging
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import sentencepiece

from benchmarks.preprocess.peer_columns import cut, peer_columns, piece_lengths, summed_subwords

BLOCK_BYTES = 1 << 22
BATCH_DOCUMENTS = 100
MIN_CHARACTERS = 64
_PAGE = re.compile(rb"<page>.*?</page>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>")
_ID = re.compile(r"<id>(\d+)</id>")
_TEXT = re.compile(r"<text[^>]*[^/>]>(.*?)</text>", re.DOTALL)


def preprocess(dump: str, model: bytes, output: str, max_characters: int) -> int:
    """Write the windows of `dump` to `output` and return the number of characters of all documents."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    lengths = piece_lengths(processor)
    characters, writer = 0, None
    with pa.OSFile(output, "wb") as sink:
        for batch in batches(read_documents(Path(dump))):
            windows = [(name, *window) for name, text in batch for window in cut(text, max_characters)]
            names, texts, sentences = zip(*windows, strict=True)
            columns: dict[str, Any] = {"document": names, "language": ["en"] * len(texts), "text": texts}
            columns["sentence_starts"] = pa.array(sentences, pa.list_(pa.uint16()))
            subwords = summed_subwords(processor, lengths, texts)
            table = pa.table(columns | peer_columns(texts, subwords))
            writer = writer or pa.ipc.new_stream(sink, table.schema)
            writer.write_table(table)
            characters += sum(len(text) for _, text in batch)
        if writer:
            writer.close()
    return characters


def batches(documents: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield the documents in lists."""
    batch = []
    for document in documents:
        batch.append(document)
        if len(batch) == BATCH_DOCUMENTS:
            yield batch
            batch = []
    if batch:
        yield batch


def read_documents(dump: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each article that is long enough, except duplicates."""
    extract = importlib.import_module("wikiextractor.extract")
    logging.getLogger("wikiextractor").setLevel(logging.CRITICAL)  # it logs a line for each error in a page
    digests: set[bytes] = set()
    for page in read_pages(dump):
        title, number, wikitext = _TITLE.search(page), _ID.search(page), _TEXT.search(page)
        if not (title and number and wikitext) or "<ns>0</ns>" not in page or "<redirect" in page:
            continue
        extractor = extract.Extractor(number[1], "1", "", html.unescape(title[1]), [])
        lines = extractor.clean_text(html.unescape(wikitext[1]), expand_templates=False, html_safe=False)
        text = unicodedata.normalize("NFC", "\n".join(lines)).strip()
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if len(text) >= MIN_CHARACTERS and digest not in digests:
            digests.add(digest)
            yield f"enwiki:{number[1]}", text


def read_pages(dump: Path) -> Iterator[str]:
    """Yield the XML of each page."""
    rest = b""
    with bz2.open(dump, "rb") if dump.suffix == ".bz2" else dump.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            rest, end = rest + block, 0
            for page in _PAGE.finditer(rest):
                yield page[0].decode()
                end = page.end()
            rest = rest[end:]
