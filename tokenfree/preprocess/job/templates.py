"""The templates of each wiki of a job, collected from its dumps and merged into one sorted file a wiki.

    _work/templates/PART-*.arrow   templates of a part of a dump, sorted
    _work/templates/PART.json      their hashes
    _work/templates/WIKI.arrow     templates of a wiki, sorted; of several revisions the newest
    _work/templates/WIKI.json      its hash, which is part of the fingerprint of each run
    failures/templates-WIKI.*      a copy for `replay`, if pages of the wiki failed

The files are read in small batches, whose first keys are in the sidecars. So neither the merge nor a worker needs
memory for more templates than it uses.
"""

import functools
import hashlib
import json
import os
import sys
import tempfile
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, hashes_of, read_sealed, write_sealed
from tokenfree.preprocess.job.job import TEMPLATES, PreprocessJob
from tokenfree.preprocess.records import InputSplit, Page, Site
from tokenfree.preprocess.shards.sorted_runs import grouped
from tokenfree.preprocess.sources.wikipedia import read_templates
from tokenfree.preprocess.wikitext.templates import Definitions, title_key

_SCHEMA = pa.schema([("key", pa.string()), ("revision", pa.int64()), ("text", pa.large_string())])
_BATCH_ROWS, _BATCH_CHARACTERS = 64, 64_000
_MERGED_BATCHES = 128  # about, at a time
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
    rows = map(_row, read_templates(InputSplit.from_json(line)))
    files: dict[str, str] = {}
    first_keys: dict[str, list[str]] = {}
    for number, part in enumerate(grouped(rows, _num_characters, sys.maxsize, job.config.split_bytes)):
        file = f"{name}-{number:05}.arrow"
        files[file], first_keys[file] = write_rows(storage, file, sorted(part))
    write_sealed(storage, f"{name}.json", {"files": files, "first_keys": first_keys})
    return name


def _row(page: Page) -> _Row:
    assert page.site is not None
    return title_key(page.title, page.site), -int(page.id.rpartition(":")[2]), page.text


def num_wikis(job: PreprocessJob) -> int:
    return len(_wikis(job))


def _wikis(job: PreprocessJob) -> dict[str, list[str]]:
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
    first_keys: dict[str, list[str]] = {}
    for line in lines:
        record = read_sealed(storage, f"{_name(line)}.json")
        if record is None:
            raise JobError(f"{job.url}/{_name(line)}.json: gone or damaged; run the job again")
        parts.update(record["files"])
        first_keys.update(record["first_keys"])
    name = _name(database)
    record = read_sealed(storage, f"{name}.json")
    if (
        record is not None
        and record["parts"] == parts
        and record["store_sha256"] == hash_of(storage, f"{name}.arrow")
    ):
        return database
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        paths = {_local_path(storage, part, folder): first_keys[part] for part in parts}
        newest = (next(rows) for _, rows in groupby(_merged(paths), key=itemgetter(0)))
        sha256, firsts = write_rows(storage, f"{name}.arrow", newest)
    write_sealed(storage, f"{name}.json", {"parts": parts, "store_sha256": sha256, "first_keys": firsts})
    return database


def _merged(paths: Mapping[str, Sequence[str]]) -> Iterator[_Row]:
    """Yield the rows of sorted files in order. `paths` has the first keys of their batches.

    A range of keys at a time is read from all files.
    """
    starts = sorted({key for keys in paths.values() for key in keys})[_MERGED_BATCHES::_MERGED_BATCHES]
    for low, high in pairwise(["", *starts, _AFTER_ALL_KEYS]):
        rows: list[_Row] = []
        for path, keys in paths.items():
            first, end = max(0, bisect_right(keys, low) - 1), bisect_left(keys, high)
            if first < end:
                with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
                    for number in range(first, end):
                        columns: list[list[Any]] = [
                            column.to_pylist() for column in reader.get_batch(number).columns
                        ]
                        rows += [row for row in zip(*columns, strict=True) if low <= row[0] < high]
        yield from sorted(rows)


_AFTER_ALL_KEYS = "\U0010ffff"


def write_rows(storage: Storage, name: str, rows: Iterable[_Row]) -> tuple[str, list[str]]:
    """Commit sorted rows. Return the SHA-256 of the file and the first key of each batch."""
    first_keys: list[str] = []
    with (
        storage.new_file(name) as new,
        pa.OSFile(new.path, "wb") as sink,
        pa.ipc.new_file(sink, _SCHEMA) as writer,
    ):
        for batch in grouped(rows, _num_characters, _BATCH_ROWS, _BATCH_CHARACTERS):
            writer.write_batch(_batch(batch))
            first_keys.append(batch[0][0])
    return new.sha256, first_keys


def _num_characters(row: _Row) -> int:
    return len(row[2])


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
    ]
    return pa.record_batch(arrays, schema=_SCHEMA)


def _name(content: str, prefix: str = f"{TEMPLATES}/") -> str:
    return f"{prefix}{hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}"


def _local_path(storage: Storage, name: str, folder: str) -> str:
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
    site = json.loads(line)["site"] if job.templates else None
    if site is None:
        return None
    return _store_record(job.url, job.fingerprint, _name(site["database"]))["store_sha256"]


@functools.lru_cache(maxsize=64)
def _store_record(url: str, fingerprint: str, name: str) -> dict[str, Any]:
    record = read_sealed(Storage(url), f"{name}.json")
    if record is None:
        raise JobError(f"{url}/{name}.json: gone or damaged; run the job again")
    return record


def keep_templates(job: PreprocessJob, database: str) -> None:
    """Commit a copy of the templates of a wiki, by which `replay` cleans its failed pages.

    Raises JobError if they are gone.
    """
    storage, name, kept = job.storage, _name(database), _name(database, KEPT)
    record = _store_record(job.url, job.fingerprint, name)
    with storage.new_file(f"{kept}.arrow") as new:
        storage.get(f"{name}.arrow", new.path)
    write_sealed(storage, f"{kept}.json", {key: record[key] for key in ("store_sha256", "first_keys")})


KEPT = "failures/templates-"


@functools.lru_cache(maxsize=2)
def open_templates(url: str, fingerprint: str, site: Site, prefix: str = f"{TEMPLATES}/") -> Definitions:
    """Return the templates of a wiki, opened once per process. Raises JobError if they are gone."""
    name = _name(site.database, prefix)
    record = _store_record(url, fingerprint, name)
    storage = Storage(url)
    folder = Path(tempfile.gettempdir()) / f"tokenfree-templates-{os.getuid()}-{record['store_sha256'][:32]}"
    if not storage.is_local:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise JobError(
                f"{folder} belongs to somebody else; remove it, or set TMPDIR to a folder of your own"
            )
    path = _local_path(storage, f"{name}.arrow", str(folder))
    return Definitions(StoredTemplates(path, record["first_keys"]), site)


def definitions_of(job: PreprocessJob, site: Site) -> Definitions:
    """Return the templates of a wiki, or none if they are not expanded. Raises JobError if they are gone."""
    return open_templates(job.url, job.fingerprint, site) if job.templates else Definitions({}, site)


class StoredTemplates(Mapping[str, str]):
    """The texts of the templates in a sorted file, by their keys. `first_keys` has the first key of each batch."""

    def __init__(self, path: str, first_keys: Sequence[str]) -> None:
        self._first_keys = first_keys
        # Not mapped: pages of the file would count as memory of each process.
        self._reader = pa.ipc.open_file(pa.OSFile(path))

    def __getitem__(self, key: str) -> str:
        number = bisect_right(self._first_keys, key) - 1
        if number < 0:
            raise KeyError(key)
        batch = self._reader.get_batch(number)
        keys = batch["key"]
        row = bisect_left(range(len(keys)), key, key=lambda row: keys[row].as_py())
        if row == len(keys) or keys[row].as_py() != key:
            raise KeyError(key)
        return batch["text"][row].as_py()

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self._first_keys)):
            yield from self._reader.get_batch(number)["key"].to_pylist()

    def __len__(self) -> int:
        return sum(1 for _ in self)
