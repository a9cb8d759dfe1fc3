"""The vocabulary of a job: trained on a sample of its runs, or given; committed once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import time
from collections.abc import Mapping

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import hashes_of, read_sealed, write_sealed
from tokenfree.preprocess.dataset.vocabulary import MODEL, VOCABULARY
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.features.vocabulary_process import TrainingProgress, train_watched
from tokenfree.preprocess.job.identity import read_given_model
from tokenfree.preprocess.job.preprocess_job import VOCABULARY_PROGRESS, VOCABULARY_SIDECAR, PreprocessJob
from tokenfree.preprocess.records.window_columns import SUBWORD_COLUMNS
from tokenfree.preprocess.shards.partitioning import Partition
from tokenfree.preprocess.shards.plan import DocumentSet
from tokenfree.preprocess.shards.vocabulary_sample import sample_size, sample_texts


def make_vocabulary(job: PreprocessJob, documents: Mapping[Partition, DocumentSet]) -> str | None:
    """The SHA-256 of the model under `vocabulary/`, trained or copied unless an earlier attempt did; None where no
    column needs one.

    Raises:
        UserError: the given model cannot be read, or `vocabulary.size` does not fit the corpus.
        JobError: SentencePiece could not train it.
    """
    if not SUBWORD_COLUMNS & set(job.config.columns):
        return None
    storage, config = job.storage, job.config.vocabulary
    done = read_sealed(storage, VOCABULARY_SIDECAR)
    if done is not None and done["job"] == job.fingerprint and hashes_of(storage, done["files"]) == done["files"]:
        return done["files"][MODEL]
    if config.model is not None:
        model = read_given_model(config.model)
    else:
        texts, size = sample_texts(storage, documents, config), sample_size(documents, config)
        model = train_watched(texts, config, job.config.seed, size, _Teller(storage))
    vocabulary = Vocabulary.load(model)
    lines = "".join(f"{piece}\n" for piece in vocabulary.pieces())
    files = {
        name: storage.write_bytes(name, data).sha256 for name, data in ((VOCABULARY, lines.encode()), (MODEL, model))
    }
    write_sealed(storage, VOCABULARY_SIDECAR, {"job": job.fingerprint, "files": files, "size": vocabulary.size})
    return files[MODEL]


def training_progress(storage: Storage) -> TrainingProgress | None:
    """How far the training of the vocabulary is; None where it has not said it, as a small one never does."""
    values = storage.read_json(VOCABULARY_PROGRESS)
    return None if values is None else TrainingProgress(**values)


class _Teller:
    """Writes down how far the training is, for whoever watches the job from another process, now and then."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seconds = 0.3 if storage.is_local else 5.0
        self._written = float("-inf")
        storage.remove(VOCABULARY_PROGRESS)  # of an attempt that was killed

    def __call__(self, progress: TrainingProgress) -> None:
        if time.monotonic() - self._written < self._seconds:
            return
        self._written = time.monotonic()
        with contextlib.suppress(Exception):  # the training goes on whether or not anybody hears of it
            self._storage.write_json(VOCABULARY_PROGRESS, dataclasses.asdict(progress))


def made_vocabulary(job: PreprocessJob, sha256: str) -> Vocabulary:
    """The vocabulary that the job made, loaded once per process.

    Raises:
        JobError: it is another one by now.
    """
    return _made(job.url, sha256)


@functools.lru_cache(maxsize=1)
def _made(url: str, sha256: str) -> Vocabulary:
    model = Storage(url).read_bytes(MODEL)
    if hashlib.sha256(model).hexdigest() != sha256:
        raise JobError(f"{url}/{MODEL}: changed while the job was running; run the job again")
    return Vocabulary.load(model)
