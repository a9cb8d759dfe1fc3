"""Build one shard: merge its documents from all runs, compute their windows, check, write and commit them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from tokenfree.core.errors import JobError
from tokenfree.core.settings_values import fingerprint
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import sealed_record, write_sealed
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.preprocess.dataset.verify import check_windows
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import MAX_BATCH_ROWS, Document, schema
from tokenfree.preprocess.shards.plan import DocumentSet, ShardTask
from tokenfree.preprocess.shards.sorted_runs import grouped
from tokenfree.preprocess.text.characters import count_scripts

GROUP_CHARACTERS = 1_000_000  # documents whose features are computed together
GROUP_DOCUMENTS = 1000
CHECKED_ROWS = 4  # rows of each batch that are checked, in less than 1% of a job's time


@dataclass(frozen=True)
class BuiltShard:
    """A committed shard, as its sidecar describes it.

    `byte_pieces` counts the subwords that are bytes. `lengths[n]` counts documents of 2**(n-1) to 2**n - 1
    characters, and `scripts` the letters in the sample of `count_scripts`.
    """

    fingerprint: str
    entry: ShardEntry
    duplicates: int
    subwords: int
    byte_pieces: int
    lengths: Mapping[str, int]
    scripts: Mapping[str, int]
    near_duplicates: int = 0


def shard_fingerprint(job: str, vocabulary_sha256: str | None, task: ShardTask) -> str:
    """Return 32 hex digits of all that decides the shard's bytes. How the inputs are split does not."""
    return fingerprint({"job": job, "vocabulary": vocabulary_sha256, **asdict(task)})


def find_shard(storage: Storage, sidecar: str, expected_fingerprint: str) -> BuiltShard | None:
    shard = sealed_record(BuiltShard, storage, sidecar)
    is_whole = (
        shard is not None
        and shard.fingerprint == expected_fingerprint
        and storage.size(shard.entry.path) == shard.entry.bytes
    )
    return shard if is_whole else None


def build_shard(
    storage: Storage,
    task: ShardTask,
    documents: DocumentSet,
    config: PreprocessConfig,
    vocabulary: Vocabulary | None,
    *,
    sidecar: str,
    shard_fingerprint: str,
) -> BuiltShard:
    """Build and commit the shard of `task` from `documents`, then its sidecar, in bounded memory.

    Raises DamagedFileError if `documents` are damaged, and JobError, committing nothing, if a document gives
    no window, or one that breaks an invariant of `verify`.
    """
    rows = num_documents = characters = subwords = byte_pieces = 0
    lengths, scripts = Counter[int](), Counter[str]()
    merge = documents.merged(storage)
    with storage.new_file(task.path) as new:
        shard_schema = schema(config.columns)
        with pa.OSFile(new.path, "wb") as sink, pa.ipc.new_stream(sink, shard_schema) as writer:
            for group in _groups(document for _, document in merge):
                previous_rows = rows
                for windows in iterate_windows(group, config, vocabulary):  # a document may have any size
                    for start in range(0, windows.rows.num_rows, MAX_BATCH_ROWS):
                        batch = windows.rows.slice(start, MAX_BATCH_ROWS)
                        _check_sample(task.path, batch, vocabulary)
                        writer.write_batch(batch)
                    rows += windows.rows.num_rows
                    characters += windows.characters
                    subwords += windows.subwords
                    byte_pieces += windows.byte_pieces
                if rows == previous_rows:
                    raise JobError(
                        f"{task.path}: no windows came of document {group[0].id}; please report this page"
                    )
                num_documents += len(group)
                lengths.update(len(document.text).bit_length() for document in group)
                scripts.update(count_scripts(document.text for document in group))
    entry = ShardEntry(
        path=task.path,
        language=task.partition.language,
        rows=rows,
        documents=num_documents,
        characters=characters,
        bytes=new.size,
        sha256=new.sha256,
    )
    built = BuiltShard(
        fingerprint=shard_fingerprint,
        entry=entry,
        duplicates=merge.duplicates,
        subwords=subwords,
        byte_pieces=byte_pieces,
        lengths={str(bits): count for bits, count in sorted(lengths.items())},
        scripts=dict(sorted(scripts.items())),
        near_duplicates=merge.near_duplicates,
    )
    write_sealed(storage, sidecar, asdict(built))
    return built


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield groups that depend on the shard alone."""
    return grouped(documents, lambda document: len(document.text), GROUP_DOCUMENTS, GROUP_CHARACTERS)


def _check_sample(path: str, batch: pa.RecordBatch, vocabulary: Vocabulary | None) -> None:
    spread = np.unique(np.linspace(0, batch.num_rows - 1, CHECKED_ROWS, dtype=np.int64))
    broken = check_windows(batch.take(pa.array(spread)), vocabulary)
    if broken is not None:
        row, _, message = broken.removeprefix("row ").partition(": ")
        window = batch.slice(int(spread[int(row)]), 1)
        name = (
            window["document"][0].as_py() if "document" in batch.schema.names else "(its column is left out)"
        )
        raise JobError(
            f"{path}: not written, a window of document {name} is wrong: {message}; please report this page"
        )
