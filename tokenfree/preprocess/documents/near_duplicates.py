"""Near-duplicates: MinHash sketches, candidate pairs by bands, and the file of dropped documents.

A sketch has 256 numbers. The share of equal numbers in two sketches estimates the Jaccard similarity of their
texts' shingles (runs of characters, after case folding and with white space collapsed). The highest bits of a
shingle's hash choose one of the numbers, and the smallest hash wins (one permutation hashing,
https://arxiv.org/abs/1208.1259). Numbers that stay empty in a short text are copied from filled ones, at
places that depend only on which are filled (densification, https://arxiv.org/abs/1703.04664). Two documents
are candidates if all numbers of a band are equal.

The sketches of a sorted run are an Arrow file of one batch next to it: `language`, `key` and `id` as in the
run, `band_00` ... (uint64, equal in two documents that are candidates), and `sketch` (256 numbers of two
bytes).
"""

import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import read_columns, write_table
from tokenfree.preprocess.records import KEY_BYTES, Document
from tokenfree.preprocess.text.characters import codepoints_of

NUM_HASHES = 256
_BITS = 8  # bits of a hash that choose the number
_PROBES = 48  # places that an empty number tries before it takes the first filled one
# Odd, so that it has an inverse modulo 2**64.
_MULTIPLIER = 0x9E3779B97F4A7C15
_CHUNK = 1 << 20  # shingles at once, for memory
_EMPTY = np.uint64(2**64 - 1)


def sketch(text: str, shingle_characters: int) -> np.ndarray:
    """Return the sketch of a text, uint16 [256]. A text shorter than a shingle is one shingle."""
    codepoints = codepoints_of(" ".join(text.casefold().split()))
    length = min(shingle_characters, max(len(codepoints), 1))
    smallest = np.full(NUM_HASHES, _EMPTY, np.uint64)
    for start in range(0, max(len(codepoints) - length + 1, 1), _CHUNK):
        hashes = _shingle_hashes(codepoints[start : start + _CHUNK + length - 1], length)
        # A quarter of the time of sorting the hashes first.
        np.minimum.at(smallest, (hashes >> np.uint64(64 - _BITS)).astype(np.intp), hashes)
    return _filled(smallest)


def similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the estimated Jaccard similarity of sketches, uint16 [..., 256]: the share of equal numbers, [...]."""
    return (first == second).mean(axis=-1)


def band_hashes(sketches: np.ndarray, rows: int) -> np.ndarray:
    """Hash each band of `rows` numbers of each sketch, uint16 [texts, 256] to uint64 [texts, 256 // rows]."""
    bands = np.ascontiguousarray(sketches).reshape(len(sketches), -1, rows).astype(np.uint64)
    hashes = np.zeros(bands.shape[:2], np.uint64)
    for row in range(rows):
        hashes = _mixed(hashes * np.uint64(_MULTIPLIER) + bands[:, :, row] + np.uint64(1))
    return hashes


def _shingle_hashes(codepoints: np.ndarray, length: int) -> np.ndarray:
    """Return a hash of each run of `length` codepoints, uint64, at a cost that does not depend on the length."""
    if not len(codepoints):
        return np.zeros(1, np.uint64)
    # Few lengths, for the cache.
    powers, inverses = _powers(1 << max(12, (len(codepoints) - 1).bit_length()))
    sums = np.append(
        np.uint64(0), np.cumsum(_mixed_codepoints().take(codepoints) * powers[: len(codepoints)])
    )
    return _mixed((sums[length:] - sums[:-length]) * inverses[: len(sums) - length])


@functools.lru_cache(maxsize=2)
def _powers(length: int) -> np.ndarray:
    """Return the first powers of the multiplier and of its inverse modulo 2**64, uint64 [2, length]."""
    factors = np.full((length, 2), (_MULTIPLIER, pow(_MULTIPLIER, -1, 2**64)), np.uint64)
    factors[0] = 1
    return np.cumprod(factors.T, axis=1)


@functools.cache
def _mixed_codepoints() -> np.ndarray:
    """Return the mixed bits of each codepoint, uint64 [0x110000]."""
    return _mixed(np.arange(sys.maxunicode + 1, dtype=np.uint64))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Mix the bits of each value, one to one (the last step of SplitMix64, https://prng.di.unimi.it/splitmix64.c)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _filled(smallest: np.ndarray) -> np.ndarray:
    # The lowest bits, because the highest bits of a minimum of many are small.
    values = smallest.astype(np.uint16)
    empty = smallest == _EMPTY
    left = np.flatnonzero(empty)
    for probes in _places() if len(left) else ():
        filled = ~empty[probes[left]]
        values[left[filled]] = values[probes[left[filled]]]
        left = left[~filled]
    values[left] = values[np.argmin(empty)]
    return values


@functools.cache
def _places() -> np.ndarray:
    """Return the places from which each empty number is copied, in order, intp [probes, 256]."""
    seeds = np.arange(1, _PROBES * NUM_HASHES + 1, dtype=np.uint64) * np.uint64(_MULTIPLIER)
    return (_mixed(seeds) >> np.uint64(64 - _BITS)).astype(np.intp).reshape(_PROBES, NUM_HASHES)


# Of a band: the more, the fewer candidates.
ROWS = (16, 8, 4)
RECALL = 0.99  # probability that a pair at the threshold is a candidate


class Pair(NamedTuple):
    """The keys of two documents of one language, the lower key first, and their estimated similarity."""

    language: str
    lower: bytes
    upper: bytes
    similarity: float


def candidate_probability(similarity: float, rows: int) -> float:
    """Return the probability 1 - (1 - s^r)^b that a pair is a candidate (Mining of Massive Datasets, chapter 3.4)."""
    return 1 - (1 - similarity**rows) ** (NUM_HASHES // rows)


def band_rows(min_similarity: float) -> int:
    """Return the most rows per band, at least 4, that find a pair at the threshold with probability `FOUND`."""
    return next((rows for rows in ROWS if candidate_probability(min_similarity, rows) >= RECALL), ROWS[-1])


def candidates(languages: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the pairs of documents to compare by one band: rows, the lower key first, int64 [pairs, 2].

    Documents of one language with one of `values` (uint64 [documents]) form a bucket. Each is compared with
    the lowest key of the bucket and with its predecessor in the order of `keys` (halves, uint64 [documents,
    2]), so a bucket of n documents gives at most 2n pairs. Equal keys count as one document.
    """
    order = np.lexsort((keys[:, 1], keys[:, 0], values, languages))
    joined = _joined(languages, values, order)
    again = joined.copy()
    again[1:] &= (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    order = order[~again]
    joined = _joined(languages, values, order)
    here = np.flatnonzero(joined)
    starts = np.maximum.accumulate(np.where(joined, 0, np.arange(len(order))))[here]
    chain = np.stack([order[here - 1], order[here]], axis=1)
    star = np.stack([order[starts], order[here]], axis=1)[starts != here - 1]
    return np.concatenate([chain, star])


def _joined(languages: np.ndarray, values: np.ndarray, order: np.ndarray) -> np.ndarray:
    joined = np.zeros(len(order), bool)
    joined[1:] = (values[order[1:]] == values[order[:-1]]) & (languages[order[1:]] == languages[order[:-1]])
    return joined


def select_dropped(pairs: Iterable[Pair]) -> list[Pair]:
    """Return one pair for each document that is dropped, sorted by language and key.

    Documents are visited in the order of their keys. A document is dropped if it is similar to one that
    stays, so no chain of small differences joins dissimilar documents. The most similar pair counts, then the
    lowest key.
    """
    dropped: dict[tuple[str, bytes], Pair] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.language, pair.upper, -pair.similarity, pair.lower)):
        if (pair.language, pair.lower) not in dropped:
            dropped.setdefault((pair.language, pair.upper), pair)
    return list(dropped.values())


KEY = pa.binary(KEY_BYTES)


def write_sketches(
    storage: Storage,
    name: str,
    documents: Iterable[tuple[bytes, Document]],
    shingle_characters: int,
    rows: int,
) -> str:
    """Commit the sketches of documents with their keys, in bands of `rows` numbers, and return the file's SHA-256."""
    sketched = [
        (document.language, key, document.id, sketch(document.text, shingle_characters))
        for key, document in documents
    ]
    values = np.array([numbers for *_, numbers in sketched], "<u2").reshape(-1, NUM_HASHES)
    columns: dict[str, Any] = {
        "language": pa.array([language for language, *_ in sketched], pa.string()),
        "key": pa.array([key for _, key, *_ in sketched], KEY),
        "id": pa.array([name for _, _, name, _ in sketched], pa.string()),
        **{band_name(number): pa.array(band) for number, band in enumerate(band_hashes(values, rows).T)},
        "sketch": pa.array([row.tobytes() for row in values], pa.binary(2 * NUM_HASHES)),
    }
    return write_table(storage, name, pa.table(columns))


def band_name(number: int) -> str:
    return f"band_{number:02}"


def sketches_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return the sketches of the column `sketch`, uint16 [documents, 256]."""
    return np.array([np.frombuffer(value.as_py(), "<u2") for value in column], "<u2").reshape(-1, NUM_HASHES)


def write_dropped(storage: Storage, name: str, pairs: Sequence[Pair]) -> str:
    """Commit the dropped documents of these sorted pairs, and return the file's SHA-256."""
    columns = {"language": [pair.language for pair in pairs], "key": [pair.upper for pair in pairs]}
    return write_table(storage, name, pa.table(columns, pa.schema([("language", pa.string()), ("key", KEY)])))


def dropped_keys(storage: Storage, name: str, language: str) -> np.ndarray:
    """Return the sorted keys of a language's dropped documents.

    They are cached, so `name` must identify the file.
    """
    return _dropped_keys(storage.url, name).get(language, np.zeros(0, f"S{KEY_BYTES}"))


@functools.lru_cache(maxsize=1)
def _dropped_keys(url: str, name: str) -> dict[str, np.ndarray]:
    table = read_columns(Storage(url), name, ["language", "key"])
    languages = np.array(table["language"].to_pylist(), dtype=object)
    keys = keys_of(table["key"])
    return {language: keys[languages == language] for language in set(languages.tolist())}


def key_halves(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return the first and last eight bytes of each key, uint64 [documents, 2].

    Their order is that of the keys.
    """
    return keys_of(column).view(">u8").reshape(-1, 2).astype(np.uint64)


def keys_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    views = [
        as_keys(chunk.buffers()[1])[chunk.offset : chunk.offset + len(chunk)]
        for chunk in chunks
        if len(chunk)
    ]
    return np.concatenate([np.zeros(0, f"S{KEY_BYTES}"), *views])


def as_keys(data: bytes | pa.Buffer) -> np.ndarray:
    """View concatenated keys as NumPy bytes.

    NumPy ignores trailing NULs, which is harmless for keys of one length.
    """
    return np.frombuffer(data, f"S{KEY_BYTES}")
