"""The vocabulary of a job: trained on a sample of its runs, or given; committed once."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.vocabulary import MODEL, VOCABULARY
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.features.vocabulary_training import train_vocabulary
from tokenfree.preprocess.job.identity import read_given_model
from tokenfree.preprocess.job.preprocess_job import VOCABULARY_SIDECAR, PreprocessJob
from tokenfree.preprocess.records.window_columns import SUBWORD_COLUMNS
from tokenfree.preprocess.shards.partitioning import Partition
from tokenfree.preprocess.shards.plan import DocumentSet
from tokenfree.preprocess.shards.vocabulary_sample import sample_texts


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
    done = storage.read_json(VOCABULARY_SIDECAR)
    if done is not None and done["job"] == job.fingerprint and storage.size(MODEL) == done["bytes"]:
        return done["sha256"]
    if config.model is not None:
        model = read_given_model(config.model)
    else:
        model = train_vocabulary(sample_texts(storage, documents, config), config, job.config.seed)
    vocabulary = Vocabulary.load(model)
    lines = "".join(f"{piece}\n" for piece in vocabulary.pieces())
    storage.write_bytes(VOCABULARY, lines.encode())
    new = storage.write_bytes(MODEL, model)
    made = {"job": job.fingerprint, "sha256": new.sha256, "bytes": new.size, "size": vocabulary.size}
    storage.write_json(VOCABULARY_SIDECAR, made)
    return new.sha256


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
