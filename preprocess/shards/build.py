"""Build one shard: merge its documents out of all runs, compute their windows, write and commit the Arrow file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from preprocess.config import PreprocessConfig
from preprocess.document import Document
from preprocess.errors import JobError
from preprocess.features import iterate_windows
from preprocess.manifest import ShardEntry
from preprocess.plan import ShardTask
from preprocess.schema import schema
from preprocess.scripts import count_scripts
from preprocess.settings import fingerprint
from preprocess.storage import Storage
from preprocess.vocabulary import Vocabulary

MAX_BATCH_ROWS = 1000
GROUP_CHARACTERS = 1_000_000  # documents that get their features together
GROUP_DOCUMENTS = 1000


@dataclass
class ShardStatistics:
    """What the card tells of a shard. `lengths[n]` counts documents of 2**(n-1) to 2**n - 1 characters."""

    duplicates: int = 0
    subwords: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)

    def add_document(self, document: Document) -> None:
        """Count one document."""
        self.lengths[len(document.text).bit_length()] += 1
        self.scripts.update(count_scripts(document.text))


@dataclass(frozen=True)
class BuiltShard:
    """The sidecar of a shard."""

    fingerprint: str
    entry: ShardEntry
    duplicates: int
    subwords: int
    lengths: Mapping[str, int]
    scripts: Mapping[str, int]


def shard_fingerprint(job: str, vocabulary_sha256: str | None, task: ShardTask) -> str:
    """Changes with anything that changes the bytes of the shard; not with how the inputs were split."""
    return fingerprint({"job": job, "vocabulary": vocabulary_sha256, **task.content()})


def find_shard(storage: Storage, sidecar: str, wanted: str) -> BuiltShard | None:
    """The shard if it was committed for the same job and is whole, else None."""
    values = storage.read_json(sidecar)
    if values is None or values.get("fingerprint") != wanted:
        return None
    entry = ShardEntry(**values.pop("entry"))
    if storage.size(entry.path) != entry.bytes:
        return None
    return BuiltShard(**values, entry=entry)


def build_shard(
    storage: Storage,
    task: ShardTask,
    config: PreprocessConfig,
    vocabulary: Vocabulary | None,
    *,
    sidecar: str,
    shard_fingerprint: str,
) -> BuiltShard:
    """Build and commit the shard of `task`, then its sidecar. Memory is bounded by one group of documents and a piece
    of a merge, whatever the size of the shard."""
    statistics = ShardStatistics()
    rows = documents = characters = 0
    merge = task.documents(storage)
    with storage.new_file(task.path) as new:
        wanted = schema(config.columns)
        with pa.OSFile(new.path, "wb") as sink, pa.ipc.new_stream(sink, wanted) as writer:
            for group in _groups(document for _, document in merge):
                rows_before, counted = rows, None
                for windows in iterate_windows(group, config, vocabulary):  # in parts: a document may be of any size
                    for start in range(0, windows.num_rows, MAX_BATCH_ROWS):
                        writer.write_batch(windows.slice(start, MAX_BATCH_ROWS))
                    rows += windows.num_rows
                    counted = count_characters(windows)
                    characters += counted or 0
                    statistics.subwords += count_items(windows, "subword_ids")
                if rows == rows_before:
                    raise JobError(f"{task.path}: no windows came of document {group[0].id}; please report this page")
                documents += len(group)
                if counted is None:  # no column that was kept tells how many characters the windows have
                    characters += sum(len(document.text) for document in group)
                for document in group:
                    statistics.add_document(document)
    entry = ShardEntry(
        path=task.path,
        language=task.language,
        rows=rows,
        documents=documents,
        characters=characters,
        bytes=new.size,
        sha256=new.sha256,
    )
    built = BuiltShard(
        fingerprint=shard_fingerprint,
        entry=entry,
        duplicates=merge.duplicates,
        subwords=statistics.subwords,
        lengths={str(bits): count for bits, count in sorted(statistics.lengths.items())},
        scripts=dict(sorted(statistics.scripts.items())),
    )
    storage.write_json(sidecar, asdict(built))
    return built


def count_characters(windows: pa.RecordBatch) -> int | None:
    """Codepoints of all windows, from whichever column tells; None where none does."""
    for name in ("codepoints", "whitespace"):
        if name in windows.schema.names:
            return count_items(windows, name)
    if "text" in windows.schema.names:
        return sum(map(len, windows["text"].to_pylist()))
    return None


def count_items(windows: pa.RecordBatch, column: str) -> int:
    """Items in all lists of a column; 0 where it is absent."""
    if column not in windows.schema.names:
        return 0
    return len(windows[column].flatten())


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """The documents in groups bounded by their characters and number: the same groups for the same shard, always."""
    group: list[Document] = []
    characters = 0
    for document in documents:
        if group and (characters + len(document.text) > GROUP_CHARACTERS or len(group) >= GROUP_DOCUMENTS):
            yield group
            group, characters = [], 0
        group.append(document)
        characters += len(document.text)
    if group:
        yield group
