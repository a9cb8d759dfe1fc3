"""A folder of embeddings. A killed job leaves one that the same command completes.

config.json              settings that decide the embeddings, written first
data-00000.arrow ...     the shards; each has a sidecar parts/00000.json until the job is complete
dataset_info.json, state.json    for datasets.load_from_disk(DIR)
vectors.json             the manifest with all hashes, including its own
_SUCCESS                 written last

D width, N vectors of a text: 1, its words, or its characters
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import TEMPORARY, AnyPath
from tokenfree.core.locks import LOCK
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hashes, hash_of, read_sealed, write_sealed
from tokenfree.train.inference.corpus import Part, VectorsOf

VERSION = 1  # version of the format
COUNTS = ("texts", "vectors", "windows", "characters")  # counted per shard and in total
CONFIG, EMBEDDINGS_MANIFEST, SUCCESS = "config.json", "vectors.json", "_SUCCESS"
_LAYOUT = ("dataset_info.json", "state.json")
_AGAIN = "remove the folder and run the command again"
_BATCH_ROWS = 1000  # rows per record batch, as in data directories


class TextVectors(NamedTuple):
    vectors_ND: np.ndarray  # float32
    starts_N: np.ndarray  # int64: codepoint offset of the first character of each vector
    ends_N: np.ndarray  # int64: codepoint offset after its last character
    num_windows: int  # number of windows in which the text was read


class ShardRecord(NamedTuple):
    """A committed shard, as its sidecar and the manifest describe it."""

    path: str
    texts: int
    vectors: int
    windows: int
    characters: int
    bytes: int
    sha256: str
    of_texts: str  # SHA-256 of its texts, from `Part.sha256`


def is_vectors_folder(names: list[str]) -> bool:
    """Return True if a folder with these files has embeddings, complete or not."""
    return EMBEDDINGS_MANIFEST in names or (CONFIG in names and "parts" in names)


def finished(storage: Storage) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, whose hashes are checked, else None.

    Raises JobError for damage.
    """
    if hash_of(storage, SUCCESS) is None:
        return None
    manifest, mark = read_sealed(storage, EMBEDDINGS_MANIFEST), storage.read_json(SUCCESS)
    if manifest is None:
        raise JobError(f"{storage.url}/{EMBEDDINGS_MANIFEST}: damaged; {_AGAIN}")
    if mark != {EMBEDDINGS_MANIFEST: hash_of(storage, EMBEDDINGS_MANIFEST)}:
        raise JobError(f"{storage.url}/{SUCCESS}: damaged; {_AGAIN}")
    hashes = {**manifest["files"], **{shard["path"]: shard["sha256"] for shard in manifest["shards"]}}
    check_hashes(storage, hashes, source=EMBEDDINGS_MANIFEST, action=_AGAIN)
    return manifest


def verify(directory: AnyPath) -> dict[str, Any]:
    """Check all hashes of a folder and return its manifest.

    Raises JobError if it is incomplete or damaged.
    """
    manifest = finished(Storage.at(directory))
    if manifest is None:
        raise JobError(f"{directory}: not complete; run the command that makes it again")
    return manifest


def open_folder(storage: Storage, config: Mapping[str, Any]) -> None:
    """Begin a new folder, or resume one.

    Raises UserError if it has other settings, which are named, or other files.
    """
    names = [name for name in storage.names() if name not in (TEMPORARY, LOCK)]
    if not names:
        write_sealed(storage, CONFIG, config)
        return
    previous = read_sealed(storage, CONFIG)
    if previous is None:
        what = f"its {CONFIG} is damaged" if CONFIG in names else "it holds other files"
        raise UserError(
            f"{storage.url}: no folder of vectors ({what}). Give a new or empty folder as --output."
        )
    keys = [key for key in dict.fromkeys([*previous, *config]) if previous.get(key) != config.get(key)]
    if keys:
        changes = "; ".join(f"{key} {previous.get(key)!r}, now {config.get(key)!r}" for key in keys)
        raise UserError(
            f"{storage.url} has other vectors ({changes}). Give the same command, or another --output."
        )


def committed(storage: Storage, part: Part) -> ShardRecord | None:
    """Return the record of a part already written, else None.

    Raises UserError if it was written with other texts.
    """
    values = read_sealed(storage, _sidecar(part.number))
    if values is None:
        return None
    record = ShardRecord(**values["shard"])
    _refuse_other_texts(storage, part, record.of_texts)
    return record if storage.size(record.path) == record.bytes else None


def commit(
    storage: Storage, part: Part, embeddings: Sequence[TextVectors], vectors: VectorsOf
) -> ShardRecord:
    """Write the shard of a part, then its sidecar."""
    name = f"data-{part.number:05d}.arrow"
    with storage.new_file(name) as new:
        write(new.path, part, embeddings, vectors)
    record = ShardRecord(
        path=name,
        texts=len(part.texts),
        vectors=sum(len(embedding.vectors_ND) for embedding in embeddings),
        windows=sum(embedding.num_windows for embedding in embeddings),
        characters=sum(map(len, part.texts)),
        bytes=new.size,
        sha256=new.sha256,
        of_texts=part.sha256,
    )
    write_sealed(storage, _sidecar(part.number), {"shard": record._asdict()})
    return record


def _sidecar(number: int) -> str:
    return f"parts/{number:05d}.json"


def write(path: str, part: Part, embeddings: Sequence[TextVectors], vectors: VectorsOf) -> None:
    """Write the rows of a part of the corpus as an Arrow stream.

    The columns are `number` (of the text in the corpus), `text`, `windows`, and `vector` for texts, else
    `vectors`. Words add `word_starts` and `word_ends`, codepoint offsets.
    """
    all_ND = np.concatenate([embedding.vectors_ND for embedding in embeddings])
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(all_ND).reshape(-1)), all_ND.shape[1]
    )
    offsets = pa.array(np.cumsum([0, *(len(embedding.vectors_ND) for embedding in embeddings)]), pa.int32())

    def listed(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, values)

    columns: dict[str, pa.Array] = {
        "number": pa.array(range(part.first, part.first + len(part.texts)), pa.int64()),
        "text": pa.array(part.texts, pa.string()),
        "windows": pa.array([embedding.num_windows for embedding in embeddings], pa.int32()),
    }
    if vectors == "words":
        starts, ends = (
            np.concatenate(edges) for edges in zip(*((f.starts_N, f.ends_N) for f in embeddings), strict=True)
        )
        columns["word_starts"] = listed(pa.array(starts, pa.int32()))
        columns["word_ends"] = listed(pa.array(ends, pa.int32()))
    columns |= {"vector": flat} if vectors == "texts" else {"vectors": listed(flat)}
    table = pa.table(columns)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS)


def finish(
    storage: Storage, config: Mapping[str, Any], used: Mapping[str, Any], records: Sequence[ShardRecord]
) -> dict[str, Any]:
    """Write the manifest and the success mark, and return the manifest.

    `used` comes from `Checkpoint.record`.
    """
    storage.write_json("dataset_info.json", {"description": f"Vectors of {config['vectors']}."})
    storage.write_json(
        "state.json",
        {
            "_data_files": [{"filename": record.path} for record in records],
            "_fingerprint": records[0].sha256[:32],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        },
    )
    manifest = {
        "version": VERSION,
        "config": dict(config),
        **used,
        "shards": [record._asdict() for record in records],
        "files": {name: hash_of(storage, name) for name in (CONFIG, *_LAYOUT)},
        **{name: sum(getattr(record, name) for record in records) for name in COUNTS},
    }
    write_sealed(storage, EMBEDDINGS_MANIFEST, manifest)
    storage.write_json(SUCCESS, {EMBEDDINGS_MANIFEST: hash_of(storage, EMBEDDINGS_MANIFEST)})
    return manifest


def check_same(storage: Storage, shards: list[dict[str, str]], corpus: Iterator[Part]) -> None:
    """Raise UserError unless the shards of a complete folder were made of this corpus."""
    for part, shard in itertools.zip_longest(corpus, shards):
        if part is None:
            raise UserError(
                f"{storage.url} has the vectors of more texts. Give the same input, or another --output."
            )
        _refuse_other_texts(storage, part, None if shard is None else shard["of_texts"])


def _refuse_other_texts(storage: Storage, part: Part, of_texts: str | None) -> None:
    if of_texts != part.sha256:
        raise UserError(
            f"{storage.url}: texts {part.first + 1} to {part.first + len(part.texts)} are not those that it was begun "
            "with. Give the same input, or another --output."
        )
