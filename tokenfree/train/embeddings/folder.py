"""A folder of vectors: its shards with a sidecar each while it is made, then its manifest, and what `datasets` reads.

config.json              what decides the vectors, written first
data-00000.arrow ...     the shards, and parts/00000.json beside each until the end
dataset_info.json, state.json    datasets.load_from_disk(DIR) opens the folder
vectors.json             the manifest, with all hashes; its own is in it
_SUCCESS                 written last
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import TEMPORARY
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import check_hash, hash_of, read_sealed, write_sealed
from tokenfree.preprocess.common.stored.store_lock import LOCK
from tokenfree.train.embeddings.parts import Part
from tokenfree.train.embeddings.rows import write

if TYPE_CHECKING:  # they import torch, which nobody waits for who only checks a folder
    from tokenfree.train.embeddings.vectors import TextVectors, Wanted

VERSION = 1  # of the format
COUNTS = ("texts", "vectors", "windows", "characters")  # of each shard and of all
CONFIG, MANIFEST, SUCCESS = "config.json", "vectors.json", "_SUCCESS"
_LAYOUT = ("dataset_info.json", "state.json")
_AGAIN = "remove the folder and run the command again"


class ShardRecord(NamedTuple):
    """A shard that is committed, as its sidecar and the manifest have it."""

    path: str
    texts: int
    vectors: int
    windows: int
    characters: int
    bytes: int
    sha256: str
    of_texts: str  # SHA-256 of its texts, see `Part.sha256`


def is_vectors_folder(names: list[str]) -> bool:
    """Whether a folder with these files is one of vectors, finished or not."""
    return MANIFEST in names or (CONFIG in names and "parts" in names)


def open_folder(storage: Storage, config: Mapping[str, Any]) -> None:
    """Begin a new folder, or see that an existing one is of the same vectors.

    Raises:
        UserError: it is of others (what differs is named), or holds other files.
    """
    names = [name for name in storage.names() if name not in (TEMPORARY, LOCK)]
    if not names:
        write_sealed(storage, CONFIG, config)
        return
    before = read_sealed(storage, CONFIG)
    if before is None:
        what = f"its {CONFIG} is damaged" if CONFIG in names else "it holds other files"
        raise UserError(f"{storage.url}: no folder of vectors ({what}); give a new or empty folder as --output")
    keys = [key for key in dict.fromkeys([*before, *config]) if before.get(key) != config.get(key)]
    if keys:
        shown = "; ".join(f"{key} {before.get(key)!r}, now {config.get(key)!r}" for key in keys)
        raise UserError(f"{storage.url} has other vectors ({shown}); give the same command, or another --output")


def committed(storage: Storage, part: Part) -> ShardRecord | None:
    """The record of a part whose shard stands already, None where it does not.

    Raises:
        UserError: it stands with other texts.
    """
    values = read_sealed(storage, _sidecar(part.number))
    if values is None:
        return None
    record = ShardRecord(**values["shard"])
    refuse_other_texts(storage, part, record.of_texts)
    return record if storage.size(record.path) == record.bytes else None


def commit(storage: Storage, part: Part, found: Sequence[TextVectors], wanted: Wanted) -> ShardRecord:
    """Write the shard of a part, then its sidecar.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    name = f"data-{part.number:05d}.arrow"
    with storage.new_file(name) as new:
        write(new.path, part, found, wanted.vectors)
    record = ShardRecord(
        path=name,
        texts=len(part.texts),
        vectors=sum(len(each.vectors_ND) for each in found),
        windows=sum(each.num_windows for each in found),
        characters=sum(map(len, part.texts)),
        bytes=new.size,
        sha256=new.sha256,
        of_texts=part.sha256,
    )
    write_sealed(storage, _sidecar(part.number), {"shard": record._asdict()})
    return record


def finish(
    storage: Storage, config: Mapping[str, Any], used: Mapping[str, Any], records: Sequence[ShardRecord]
) -> dict[str, Any]:
    """Write the manifest and the mark of success; returns the manifest. `used`: see `Checkpoint.record`.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    storage.write_json("dataset_info.json", {"description": f"Vectors of {config['vectors']}."})
    state = {
        "_data_files": [{"filename": record.path} for record in records],
        "_fingerprint": records[0].sha256[:32],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    storage.write_json("state.json", state)
    manifest = {
        "version": VERSION,
        "config": dict(config),
        **used,
        "shards": [record._asdict() for record in records],
        "files": {name: hash_of(storage, name) for name in (CONFIG, *_LAYOUT)},
        **{name: sum(getattr(record, name) for record in records) for name in COUNTS},
    }
    write_sealed(storage, MANIFEST, manifest)
    storage.write_json(SUCCESS, {MANIFEST: hash_of(storage, MANIFEST)})
    return manifest


def tidy(storage: Storage) -> None:
    """Remove from a finished folder what only one in the making needs."""
    for name in ("parts", TEMPORARY):
        storage.remove(name)


def finished(storage: Storage) -> dict[str, Any] | None:
    """The manifest of a folder that is complete, else None."""
    manifest, mark = read_sealed(storage, MANIFEST), storage.read_json(SUCCESS)
    if manifest is None or not isinstance(mark, dict) or mark.get(MANIFEST) != hash_of(storage, MANIFEST):
        return None
    return manifest


def verify(directory: str) -> dict[str, Any]:
    """Check every hash of a complete folder; returns its manifest.

    Raises:
        JobError: it is not complete, or a file is missing or damaged, which is named.
    """
    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise JobError(
            f"{directory}: not complete, or its {MANIFEST} or {SUCCESS} is damaged; run the command that makes it again"
        )
    hashes = {shard["path"]: shard["sha256"] for shard in manifest["shards"]}
    for name, sha256 in {**manifest["files"], **hashes}.items():
        check_hash(storage, name, sha256, source=MANIFEST, remedy=_AGAIN)
    return manifest


def refuse_other_texts(storage: Storage, part: Part, of_texts: str | None) -> None:
    """See that a part has the texts that a shard of its number was made of; None: there was none.

    Raises:
        UserError: it has others.
    """
    if of_texts != part.sha256:
        raise UserError(
            f"{storage.url}: texts {part.first + 1} to {part.first + len(part.texts)} are not those that it was begun "
            "with; give the same input, or another --output"
        )


def _sidecar(number: int) -> str:
    return f"parts/{number:05d}.json"
