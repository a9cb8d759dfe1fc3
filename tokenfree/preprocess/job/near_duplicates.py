"""The steps that find near-duplicates: search each band, compare pairs, and write the documents to drop.

near_duplicates.jsonl           for people: each dropped document, and the one that is kept instead
_work/near_duplicates/*.arrow   candidates of each band; language and key of dropped documents
_work/near_duplicates.json      written last: marks the end, and names the job
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import (
    checked,
    hash_of,
    hashes_of,
    read_columns,
    read_sealed,
    write_sealed,
    write_table,
)
from tokenfree.preprocess.dataset.manifest import NEAR_DUPLICATE_PAIRS
from tokenfree.preprocess.documents.near_duplicates import (
    KEY,
    NUM_HASHES,
    Pair,
    band_name,
    band_rows,
    candidates,
    chosen,
    keys_of,
    numbers_of,
    similarity,
    write_gone,
)
from tokenfree.preprocess.job.job import NEAR_DUPLICATES, PreprocessJob, notes_errors
from tokenfree.preprocess.job.read import all_runs, sketches_name
from tokenfree.preprocess.shards.sorted_runs import SortedRun


def num_bands(job: PreprocessJob) -> int:
    """Return the number of bands of the sketches, or 0 if near-duplicates are kept."""
    least = job.config.near_duplicates.min_similarity
    return 0 if least is None else NUM_HASHES // band_rows(least)


@notes_errors("near_duplicates")
def find_in_one_band(job: PreprocessJob, index: int) -> int:
    """Commit the candidates of one band, unless an earlier attempt did, and return its number.

    Needs about a hundred bytes per document of the whole corpus. Raises JobError if a run is missing.
    """
    storage, name = job.storage, pairs_name(job, index)
    known = read_sealed(storage, f"{name}.json")
    if known is not None and known["band_sha256"] == hash_of(storage, name):
        return index
    columns = ("language", "key", band_name(index))
    runs = all_runs(job, read=False)  # the texts are not needed, and would be read for each band
    documents = read_sketches(job, runs, columns).combine_chunks()
    languages = documents["language"].combine_chunks().dictionary_encode()
    codes = languages.indices.to_numpy(zero_copy_only=False)
    keys = key_halves(documents["key"])
    rows = candidates(codes, keys, documents[band_name(index)].to_numpy())
    lower, upper = documents.take(pa.array(rows[:, 0])), documents.take(pa.array(rows[:, 1]))
    pairs = {"language": lower["language"], "lower": lower["key"], "upper": upper["key"]}
    write_sealed(storage, f"{name}.json", {"band_sha256": write_table(storage, name, pa.table(pairs, PAIRS))})
    return index


PAIRS = pa.schema([("language", pa.string()), ("lower", KEY), ("upper", KEY)])


def pairs_name(job: PreprocessJob, index: int) -> str:
    return f"{NEAR_DUPLICATES}/{job.fingerprint}-{band_name(index)}.arrow"


def read_sketches(job: PreprocessJob, runs: Sequence[SortedRun], columns: Sequence[str]) -> pa.Table:
    names = [sketches_name(run.name) for run in runs if run.file.batches]
    return pa.concat_tables([read_columns(job.storage, name, columns) for name in names])


def key_halves(keys: pa.ChunkedArray) -> np.ndarray:
    """Return the two halves of each key, uint64 [documents, 2]. Their order is that of the keys."""
    return keys_of(keys).view(">u8").reshape(-1, 2).astype(np.uint64)


_DONE = f"{NEAR_DUPLICATES}.json"
_COMPARED = 4096  # pairs at a time
_Document = tuple[str, bytes]  # language and key


@dataclass(frozen=True)
class NearDuplicates:
    """The documents to drop, listed in `file`.

    `lowest` and `highest` are the keys (hex) with the lowest and highest draw among the documents that stay, which
    decide where the first text of validation comes from. `files` has the SHA-256 of `file` and of the file of pairs, by
    name.
    """

    job: str
    file: str
    documents: int
    lowest: str
    highest: str
    files: dict[str, str]


def find_near_duplicates(job: PreprocessJob, runs: Sequence[SortedRun]) -> NearDuplicates | None:
    """Return the near-duplicates of a job whose bands are searched, or None if near-duplicates are kept."""
    if not num_bands(job):
        return None
    storage = job.storage
    done = _done(storage)
    if done is not None and done.job == job.fingerprint and hashes_of(storage, done.files) == done.files:
        return done
    sketched, ids = _compared_documents(job, runs, _candidates(job))
    gone = chosen(_near_pairs(_candidates(job), sketched, job.config.near_duplicates.min_similarity or 0.0))
    name = f"{NEAR_DUPLICATES}/{job.fingerprint}-gone.arrow"
    files = {name: write_gone(storage, name, gone), NEAR_DUPLICATE_PAIRS: _write_pairs(storage, gone, ids)}
    lowest, highest = _extremes(job, runs, {(pair.language, pair.upper) for pair in gone})
    made = NearDuplicates(job.fingerprint, name, len(gone), lowest.hex(), highest.hex(), files)
    write_sealed(storage, _DONE, asdict(made))
    return made


def _done(storage: Storage) -> NearDuplicates | None:
    try:
        return checked(NearDuplicates, read_sealed(storage, _DONE))
    except ValueError:
        return None


def _candidates(job: PreprocessJob) -> pa.Table:
    names = [pairs_name(job, index) for index in range(num_bands(job))]
    columns = ["language", "lower", "upper"]
    found = pa.concat_tables([read_columns(job.storage, name, columns) for name in names])
    once = found.group_by(columns).aggregate([])
    return once.sort_by([(column, "ascending") for column in columns])


def _compared_documents(
    job: PreprocessJob, runs: Sequence[SortedRun], pairs: pa.Table
) -> tuple[dict[_Document, np.ndarray], dict[_Document, str]]:
    """Return the sketch and id of each document in a pair. Of equal texts take the lowest id, as the shards do."""
    wanted = {
        document
        for side in ("lower", "upper")
        for document in zip(pairs["language"].to_pylist(), pairs[side].to_pylist(), strict=True)
    }
    sketches: dict[_Document, np.ndarray] = {}
    ids: dict[_Document, str] = {}
    for run in runs:
        if not run.file.batches:
            continue
        table = read_columns(job.storage, sketches_name(run.name), ["language", "key", "id", "sketch"])
        documents = [*zip(table["language"].to_pylist(), table["key"].to_pylist(), strict=True)]
        rows = [row for row, document in enumerate(documents) if document in wanted]
        found = table.take(pa.array(rows, pa.int64()))
        names: list[Any] = found["id"].to_pylist()
        for row, name, numbers in zip(rows, names, numbers_of(found["sketch"]), strict=True):
            document = documents[row]
            sketches[document] = numbers
            ids[document] = min(ids.get(document, name), name)
    return sketches, ids


def _near_pairs(pairs: pa.Table, sketches: dict[_Document, np.ndarray], least: float) -> Iterable[Pair]:
    for batch in pairs.to_batches(_COMPARED):
        columns: list[list[Any]] = [batch[name].to_pylist() for name in ("language", "lower", "upper")]
        rows = [*zip(*columns, strict=True)]
        lower = np.stack([sketches[language, key] for language, key, _ in rows])
        upper = np.stack([sketches[language, key] for language, _, key in rows])
        for (language, first, second), found in zip(rows, similarity(lower, upper).tolist(), strict=True):
            if found >= least:
                yield Pair(language, first, second, found)


def _write_pairs(storage: Storage, gone: Sequence[Pair], ids: dict[_Document, str]) -> str:
    with storage.new_file(NEAR_DUPLICATE_PAIRS) as new, open(new.path, "w", encoding="utf-8") as file:
        for pair in gone:
            row = {
                "language": pair.language,
                "kept": ids[pair.language, pair.lower],
                "dropped": ids[pair.language, pair.upper],
                "similarity": round(pair.similarity, 4),
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return new.sha256


def _extremes(job: PreprocessJob, runs: Sequence[SortedRun], gone: set[_Document]) -> tuple[bytes, bytes]:
    table = read_sketches(job, runs, ["language", "key"])
    languages, keys = table["language"].to_pylist(), table["key"].to_pylist()
    halves = key_halves(table["key"])
    order = np.lexsort((halves[:, 0], halves[:, 1]))  # by the last eight bytes, which are the draw
    lowest = next(keys[row] for row in order if (languages[row], keys[row]) not in gone)
    highest = next(keys[row] for row in order[::-1] if (languages[row], keys[row]) not in gone)
    return lowest, highest
