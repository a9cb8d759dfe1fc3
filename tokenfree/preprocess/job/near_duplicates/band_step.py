"""The step after all runs are read: the pairs of documents that agree in one band of their sketches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.common.stored.arrow_tables import read_columns, write_table
from tokenfree.preprocess.common.stored.file_hashes import hash_of, read_sealed, write_sealed
from tokenfree.preprocess.job.preprocess_job import NEAR_DUPLICATES, PreprocessJob
from tokenfree.preprocess.job.read_step import all_runs, sketches_name
from tokenfree.preprocess.job.step_errors import notes_errors
from tokenfree.preprocess.near_duplicates.gone import keys_of
from tokenfree.preprocess.near_duplicates.pairs import band_rows, candidates
from tokenfree.preprocess.near_duplicates.sketch import NUM_HASHES
from tokenfree.preprocess.near_duplicates.sketch_file import KEY, band_name
from tokenfree.preprocess.shards.sorted_runs import SortedRun


def num_bands(job: PreprocessJob) -> int:
    """How many bands the sketches have; 0 where near-duplicates stay."""
    least = job.config.near_duplicates.min_similarity
    return 0 if least is None else NUM_HASHES // band_rows(least)


@notes_errors("near_duplicates")
def find_in_one_band(job: PreprocessJob, index: int) -> int:
    """Commit the candidates of one band, unless an earlier attempt did; its number.

    Memory: about a hundred bytes a document of the whole corpus.

    Raises:
        JobError: a run is gone.
        UserError: the output directory cannot be written to.
    """
    storage, name = job.storage, pairs_name(job, index)
    known = read_sealed(storage, f"{name}.json")
    if known is not None and known["band_sha256"] == hash_of(storage, name):
        return index
    columns = ("language", "key", band_name(index))
    runs = all_runs(job, read=False)  # their texts are not needed, and would be read for each band
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
    """The file of the candidates of a band, whose name tells of what job; its hash is in a file beside it."""
    return f"{NEAR_DUPLICATES}/{job.fingerprint}-{band_name(index)}.arrow"


def read_sketches(job: PreprocessJob, runs: Sequence[SortedRun], columns: Sequence[str]) -> pa.Table:
    """These columns of the sketches of all documents of the runs."""
    names = [sketches_name(run.name) for run in runs if run.file.batches]
    return pa.concat_tables([read_columns(job.storage, name, columns) for name in names])


def key_halves(keys: pa.ChunkedArray) -> np.ndarray:
    """The two halves of each key, uint64 [documents, 2], whose order is that of the keys."""
    return keys_of(keys).view(">u8").reshape(-1, 2).astype(np.uint64)
