"""Failed pages again, after a fix of what failed on them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tokenfree.preprocess.common.settings import build
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.success_mark import note_added
from tokenfree.preprocess.documents.extract import document_of
from tokenfree.preprocess.documents.failures import FOLDER, read_failures
from tokenfree.preprocess.records.document import Document
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.records.wiki_site import Site

REPLAYED = f"{FOLDER}/replayed.jsonl"


@dataclass(frozen=True)
class ReplayResult:
    """What a replay found; `path` names the documents that came out, empty where none did."""

    tried: int
    documents: int
    still_failing: dict[str, int]
    path: str


def replay(output: str) -> ReplayResult:
    """Clean the failed pages of a finished job again with the present code.

    A finished data directory never changes, so the documents that now come out are written beside the failures, as
    `failures/replayed.jsonl` with `id`, `language`, `title` and `text`: an input (`--books`) for another job. Input
    that was too damaged to hold a page (broken XML, undecodable bytes) stays a failure.

    Raises:
        UserError: `output` is no finished data directory.
    """
    config = build(PreprocessConfig, load_manifest(output).config, source=f"{output}/manifest.json")
    storage = Storage.at(output)
    if not storage.names(FOLDER):
        return ReplayResult(0, 0, {}, "")
    tried, documents, failing = 0, 0, Counter[str]()
    note_added(storage, REPLAYED, None)
    with storage.new_file(REPLAYED) as new, open(new.path, "w", encoding="utf-8") as file:
        for row in read_failures(storage):
            tried += 1
            made = _again(row, config)
            if isinstance(made, Document):
                documents += 1
                file.write(json.dumps(vars(made), ensure_ascii=False) + "\n")
            else:
                failing[made] += 1
    if documents:
        note_added(storage, REPLAYED, new.sha256)
    else:
        storage.remove(REPLAYED)
    path = f"{storage.url}/{REPLAYED}" if documents else ""
    return ReplayResult(tried, documents, dict(sorted(failing.items())), path)


def _again(row: dict[str, Any], config: PreprocessConfig) -> Document | str:
    if row["page"] is None:
        return row["reason"]
    site = Site.from_dict(row["page"]["site"]) if row["page"]["site"] else None
    page = Page(**{**row["page"], "id": row["id"], "text": row["text"], "site": site})
    made = document_of(page, config.filters)
    if isinstance(made, Document):
        return made
    return made if isinstance(made, str) else made.reason
