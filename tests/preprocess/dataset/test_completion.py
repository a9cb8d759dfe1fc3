"""The mark of success: what the inputs were like, for the manifest that it was written for."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.preprocess.dataset.test_manifest import COUNTERS, SHARD, manifest
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, read_sealed
from tokenfree.preprocess.dataset.completion import (
    content_fingerprint,
    mark_success,
    marked_inputs,
    note_added,
    reconcile,
)
from tokenfree.preprocess.dataset.manifest import DatasetSplit

INPUTS = [{"path": "geese.txt", "size": 7, "modified": "1.5"}]


def test_inputs_come_back_for_the_same_manifest_alone(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("manifest.json", b"{}")
    assert marked_inputs(storage) is None
    mark_success(storage, INPUTS)
    assert marked_inputs(storage) == INPUTS
    storage.write_bytes("manifest.json", b"{ }")
    assert marked_inputs(storage) is None


def test_marked_inputs_are_none_for_a_damaged_mark(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("manifest.json", b"{}")
    mark_success(storage, [])
    assert marked_inputs(storage) is None
    whole = (tmp_path / "_SUCCESS").read_bytes()
    for other in (b"", b"[]", b"{", b'{"manifest_sha256": 1}', whole[:-1], whole.replace(b"[]", b"{}")):
        storage.write_bytes("_SUCCESS", other)
        assert marked_inputs(storage) is None


def test_no_mark_blesses_a_manifest_that_has_changed(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("manifest.json", b"{}")
    mark_success(storage, INPUTS)
    note_added(storage, "failures/replayed.jsonl", "ab")
    mark_success(storage, [])
    assert read_sealed(storage, "_SUCCESS") == {
        "manifest_sha256": hash_of(storage, "manifest.json"),
        "inputs": [],
        "added_later": {"failures/replayed.jsonl": "ab"},
    }
    storage.write_bytes("manifest.json", b"{ }")
    with pytest.raises(UserError, match=r"manifest\.json: damaged; see `tokenfree verify"):
        mark_success(storage, INPUTS)


def test_the_fingerprint_changes_with_the_content_alone() -> None:
    other = replace(SHARD, sha256="cd" * 32)
    prints = {
        content_fingerprint({"train": DatasetSplit(shards)}, vocabulary)
        for shards in ((SHARD,), (other,), (SHARD, other), (other, SHARD))
        for vocabulary in (None, "ef" * 32)
    }
    assert len(prints) == 8
    recounted = replace(SHARD, rows=4)
    assert content_fingerprint({"train": DatasetSplit((recounted,))}, None) == manifest().fingerprint


def test_every_page_has_to_be_accounted_for() -> None:
    reconcile(COUNTERS)
    for name in ("pages", "documents", "redirects", "other_namespaces", "duplicates"):
        with pytest.raises(JobError, match="pages were read, but"):
            reconcile({**COUNTERS, name: COUNTERS[name] + 1})
    with pytest.raises(JobError, match="3 filtered"):
        reconcile({**COUNTERS, "filtered": {"empty": 2, "too_short": 1}})
