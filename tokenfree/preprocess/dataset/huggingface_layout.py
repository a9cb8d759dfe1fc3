"""The small JSON files by which `datasets.load_from_disk` opens a data directory, whole or one split of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import DatasetSplit, content_fingerprint


def write_layout(storage: Storage, splits: Mapping[str, DatasetSplit], vocabulary_sha256: str | None) -> None:
    """Write `dataset_dict.json`, and `dataset_info.json` and `state.json` of each split.

    The features are left to the schema of the Arrow files; the fingerprint, by which `datasets` names its caches, is
    that of the contents.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    for name, split in splits.items():
        described = {"description": "Windows of text with character, word, subword and sentence features."}
        storage.write_json(f"{name}/dataset_info.json", described)
        state = {
            "_data_files": [{"filename": shard.path.partition("/")[2]} for shard in split.shards],
            "_fingerprint": content_fingerprint({name: split}, vocabulary_sha256),
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": name,
        }
        storage.write_json(f"{name}/state.json", state)
    storage.write_json("dataset_dict.json", {"splits": sorted(splits)})


def layout_files(splits: Iterable[str]) -> list[str]:
    """The names of what `write_layout` writes for these splits."""
    return ["dataset_dict.json", *(f"{name}/{file}" for name in splits for file in ("dataset_info.json", "state.json"))]
