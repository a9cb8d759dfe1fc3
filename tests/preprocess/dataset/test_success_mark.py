"""The mark of success: what the inputs were like, for the manifest that it was written for."""

from pathlib import Path

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.success_mark import mark_success, marked_inputs

INPUTS = [{"path": "geese.txt", "size": 7, "modified": "1.5"}]


def test_inputs_come_back_for_the_same_manifest_alone(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("manifest.json", b"{}")
    assert marked_inputs(storage) is None
    mark_success(storage, INPUTS)
    assert marked_inputs(storage) == INPUTS
    storage.write_bytes("manifest.json", b"{ }")
    assert marked_inputs(storage) is None


def test_a_mark_of_before_or_of_unknown_inputs_is_empty(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write_bytes("manifest.json", b"{}")
    mark_success(storage, [])
    assert (tmp_path / "_SUCCESS").read_bytes() == b""
    assert marked_inputs(storage) is None
    for damaged in (b"[]", b"{", b'{"manifest_sha256": 1}'):
        storage.write_bytes("_SUCCESS", damaged)
        assert marked_inputs(storage) is None
