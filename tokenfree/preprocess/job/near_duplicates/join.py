"""What is done once all bands are searched: pairs are compared, and the near-duplicates that go are written down.

near_duplicates.jsonl               for people: each document that goes, and the one for which it does
_work/near_duplicates/*.arrow       candidates of each band; language and key of what goes
_work/near_duplicates.json          written last: that this is done, and for which job
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.arrow_tables import read_columns
from tokenfree.preprocess.common.stored.file_hashes import hashes_of, read_sealed, write_sealed
from tokenfree.preprocess.common.stored.stored_files import checked
from tokenfree.preprocess.dataset.manifest import NEAR_DUPLICATE_PAIRS
from tokenfree.preprocess.job.near_duplicates.band_step import key_halves, num_bands, pairs_name, read_sketches
from tokenfree.preprocess.job.preprocess_job import NEAR_DUPLICATES, PreprocessJob
from tokenfree.preprocess.job.read_step import sketches_name
from tokenfree.preprocess.near_duplicates.gone import write_gone
from tokenfree.preprocess.near_duplicates.pairs import Pair, chosen
from tokenfree.preprocess.near_duplicates.sketch import similarity
from tokenfree.preprocess.near_duplicates.sketch_file import numbers_of
from tokenfree.preprocess.shards.sorted_runs import SortedRun

_DONE = f"{NEAR_DUPLICATES}.json"
_COMPARED = 4096  # pairs at once
_Document = tuple[str, bytes]  # language and key


@dataclass(frozen=True)
class NearDuplicates:
    """What goes: the `file` of languages and keys, of which job, how many; the keys (hex) with the extreme draws among
    what stays, which decide where the first text of validation comes from; and the SHA-256 of both files, by name."""

    job: str
    file: str
    documents: int
    lowest: str
    highest: str
    files: dict[str, str]


def find_near_duplicates(job: PreprocessJob, runs: Sequence[SortedRun]) -> NearDuplicates | None:
    """The near-duplicates of a job whose bands are searched; None where they stay.

    Raises:
        UserError: the output directory cannot be written to.
    """
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
    """What an earlier attempt found; None where there is none, or what it wrote is damaged."""
    try:
        return checked(NearDuplicates, read_sealed(storage, _DONE))
    except ValueError:
        return None


def _candidates(job: PreprocessJob) -> pa.Table:
    """The candidates of all bands, each once, in the order of their language and keys."""
    names = [pairs_name(job, index) for index in range(num_bands(job))]
    columns = ["language", "lower", "upper"]
    found = pa.concat_tables([read_columns(job.storage, name, columns) for name in names])
    once = found.group_by(columns).aggregate([])
    return once.sort_by([(column, "ascending") for column in columns])


def _compared_documents(
    job: PreprocessJob, runs: Sequence[SortedRun], pairs: pa.Table
) -> tuple[dict[_Document, np.ndarray], dict[_Document, str]]:
    """Sketch and id of each document that is in a pair; of equal texts the lowest id, as in the shards."""
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
    """The keys with the lowest and the highest draw for validation among the documents that stay."""
    table = read_sketches(job, runs, ["language", "key"])
    languages, keys = table["language"].to_pylist(), table["key"].to_pylist()
    halves = key_halves(table["key"])
    order = np.lexsort((halves[:, 0], halves[:, 1]))  # by the last eight bytes, which are the draw
    lowest = next(keys[row] for row in order if (languages[row], keys[row]) not in gone)
    highest = next(keys[row] for row in order[::-1] if (languages[row], keys[row]) not in gone)
    return lowest, highest
