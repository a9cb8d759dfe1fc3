"""The templates of each wiki of a job, collected from its dumps and merged into one sorted file a wiki.

    _work/templates/PART-*.arrow   templates of a part of a dump, sorted
    _work/templates/PART.json      their hashes
    _work/templates/WIKI.arrow     templates of a wiki, sorted; of several revisions the newest
    _work/templates/WIKI.json      its hash, which is part of the fingerprint of each run

Workers map the file of a wiki, so that a million templates need no memory but for those in use.
"""

import functools
import hashlib
import heapq
import json
import os
import tempfile
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, hashes_of, read_sealed, write_sealed
from tokenfree.preprocess.job.job import TEMPLATES, PreprocessJob
from tokenfree.preprocess.records import InputSplit, Site
from tokenfree.preprocess.sources.wikipedia import read_templates
from tokenfree.preprocess.wikitext.templates import Definitions, title_key

_SCHEMA = pa.schema([("key", pa.string()), ("revision", pa.int64()), ("text", pa.large_string())])
_BATCH_ROWS, _BATCH_CHARACTERS = 512, 1_000_000
_Row = tuple[str, int, str]  # key, revision with a minus, so that the newest is the first, and text


def num_template_parts(job: PreprocessJob) -> int:
    return len(job.template_lines())


def collect_templates(job: PreprocessJob, index: int) -> str:
    """Commit the templates of a part of a dump, unless an earlier attempt did, and return the name of the part."""
    storage, line = job.storage, job.template_lines()[index]
    name = _name(line)
    record = read_sealed(storage, f"{name}.json")
    if record is not None and record["files"] == hashes_of(storage, record["files"]):
        return name
    split = InputSplit.from_json(line)
    files: dict[str, str] = {}
    rows: list[_Row] = []
    size = 0
    for page in read_templates(split):
        assert page.site is not None
        rows.append((title_key(page.title, page.site), -int(page.id.rpartition(":")[2]), page.text))
        size += len(page.text)
        if size > job.config.split_bytes:
            _write_part(storage, f"{name}-{len(files):05}.arrow", rows, files)
            rows, size = [], 0
    _write_part(storage, f"{name}-{len(files):05}.arrow", rows, files)
    write_sealed(storage, f"{name}.json", {"files": files})
    return name


def _write_part(storage: Storage, name: str, rows: list[_Row], files: dict[str, str]) -> None:
    if rows:
        files[name], _ = _write(storage, name, sorted(rows))


def num_wikis(job: PreprocessJob) -> int:
    return len(_wikis(job))


def _wikis(job: PreprocessJob) -> dict[str, list[str]]:
    """Return the lines of the parts of each wiki."""
    lines: dict[str, list[str]] = {}
    for line in job.template_lines():
        lines.setdefault(json.loads(line)["site"]["database"], []).append(line)
    return dict(sorted(lines.items()))


def merge_templates(job: PreprocessJob, index: int) -> str:
    """Merge the templates of a wiki into one file, unless an earlier attempt did, and return the wiki's database.

    Raises JobError if a part is gone.
    """
    storage = job.storage
    database, lines = list(_wikis(job).items())[index]
    parts: dict[str, str] = {}
    for line in lines:
        record = read_sealed(storage, f"{_name(line)}.json")
        if record is None:
            raise JobError(f"{job.url}/{_name(line)}.json: gone or damaged; run the job again")
        parts.update(record["files"])
    name = _name(database)
    record = read_sealed(storage, f"{name}.json")
    if (
        record is not None
        and record["parts"] == parts
        and record["store_sha256"] == hash_of(storage, f"{name}.arrow")
    ):
        return database
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        sorted_parts = [_rows(_local_path(storage, part, folder)) for part in parts]
        sha256, count = _write(storage, f"{name}.arrow", _newest(heapq.merge(*sorted_parts)))
    write_sealed(storage, f"{name}.json", {"parts": parts, "store_sha256": sha256, "templates": count})
    return database


def _newest(rows: Iterable[_Row]) -> Iterator[_Row]:
    previous = None
    for row in rows:
        if row[0] != previous:
            yield row
        previous = row[0]


def _rows(path: str) -> Iterator[_Row]:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            keys, revisions, texts = reader.get_batch(number).columns
            for row in range(len(keys)):
                yield keys[row].as_py(), revisions[row].as_py(), texts[row].as_py()


def _write(storage: Storage, name: str, rows: Iterable[_Row]) -> tuple[str, int]:
    """Commit sorted rows. Return the SHA-256 of the file and the number of rows."""
    count = 0
    with (
        storage.new_file(name) as new,
        pa.OSFile(new.path, "wb") as sink,
        pa.ipc.new_file(sink, _SCHEMA) as writer,
    ):
        batch: list[_Row] = []
        characters = 0
        for row in rows:
            batch.append(row)
            characters += len(row[2])
            if len(batch) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
                writer.write_batch(_batch(batch))
                count, batch, characters = count + len(batch), [], 0
        writer.write_batch(_batch(batch))
    return new.sha256, count + len(batch)


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    columns: list[list[Any]] = [[row[number] for row in rows] for number in range(3)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=_SCHEMA)


def _name(content: str) -> str:
    return f"{TEMPLATES}/{hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}"


def _local_path(storage: Storage, name: str, folder: str) -> str:
    """Return a path of a file on this machine; from an object store, that of a copy in `folder`."""
    if storage.is_local:
        return storage.path(name)
    path = os.path.join(folder, os.path.basename(name))
    if not os.path.exists(path):
        part = f"{path}.{uuid.uuid4().hex}"
        storage.get(name, part)
        os.replace(part, path)
    return path


def template_hash(job: PreprocessJob, line: str) -> str | None:
    """Return the hash of the templates by which a split (its line of JSON) is read, or None without templates.

    Raises JobError if they are gone.
    """
    site = json.loads(line)["site"] if job.template_lines() else None
    return None if site is None else _store_hash(job.url, job.fingerprint, site["database"])


@functools.lru_cache(maxsize=64)
def _store_hash(url: str, fingerprint: str, database: str) -> str:
    record = read_sealed(Storage(url), f"{_name(database)}.json")
    if record is None:
        raise JobError(f"{url}/{_name(database)}.json: gone or damaged; run the job again")
    return record["store_sha256"]


def definitions_of(job: PreprocessJob, site: Site) -> Definitions:
    """Return the templates of a wiki, opened once per process, or none if they are not expanded."""
    if not job.template_lines():
        return Definitions({}, site)
    return _definitions(job.url, _store_hash(job.url, job.fingerprint, site.database), site)


@functools.lru_cache(maxsize=2)
def _definitions(url: str, sha256: str, site: Site) -> Definitions:
    folder = Path(tempfile.gettempdir()) / f"tokenfree-templates-{os.getuid()}-{sha256[:32]}"
    storage = Storage(url)
    if not storage.is_local:
        folder.mkdir(mode=0o700, exist_ok=True)
    path = _local_path(storage, f"{_name(site.database)}.arrow", str(folder))
    return Definitions(StoredTemplates(path), site)


class StoredTemplates(Mapping[str, str]):
    """The texts of the templates in a sorted file, by their keys."""

    def __init__(self, path: str) -> None:
        self._reader = pa.ipc.open_file(pa.memory_map(path))
        batches = [self._reader.get_batch(number) for number in range(self._reader.num_record_batches)]
        self._batches = [batch for batch in batches if len(batch)]
        self._first_keys = [batch["key"][0].as_py() for batch in self._batches]

    def __getitem__(self, key: str) -> str:
        number = bisect_right(self._first_keys, key) - 1
        if number < 0:
            raise KeyError(key)
        batch = self._batches[number]
        keys = batch["key"]
        row = bisect_left(range(len(keys)), key, key=lambda row: keys[row].as_py())
        if row == len(keys) or keys[row].as_py() != key:
            raise KeyError(key)
        return batch["text"][row].as_py()

    def __iter__(self) -> Iterator[str]:
        return (key.as_py() for batch in self._batches for key in batch["key"])

    def __len__(self) -> int:
        return sum(map(len, self._batches))
