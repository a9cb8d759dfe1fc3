"""Estimate what a job would do, without running it, from the sizes of its inputs and a sample of their pages."""

import time
from dataclasses import dataclass

from tokenfree.core.files import AnyPath
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig, steps_of
from tokenfree.preprocess.documents.extract import PageCounters, extract
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.job.inputs import read_given_model
from tokenfree.preprocess.job.merges import MERGED_RUNS
from tokenfree.preprocess.records import SUBWORD_COLUMNS, Document, InputSplit
from tokenfree.preprocess.sources.compression import zst_window
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits, read_split

# Measured on the English excerpt (benchmarks/preprocess/preprocess_stages.py): reading and cleaning take two
# thirds of the CPU time.
READING_SHARE = 0.66
# Bytes that a column takes for each character of it, besides the text.
COLUMN_BYTES = {
    "codepoints": 4.0,
    "whitespace": 0.13,
    "word_starts": 0.55,
    "word_ends": 0.55,
    "sentence_starts": 0.05,
    "subword_ids": 1.2,
    "subword_starts": 0.6,
    "subword_ends": 0.6,
}
# CPU time of training a vocabulary of 32,000 pieces per character of its sample, relative to reading and
# cleaning a character. Measured: 2.5 to 5.6 (unigram) and 0.6 to 0.9 (bpe), on 1.5 to 3 million characters of
# that excerpt and on 17 million of four languages.
TRAINING_TIMES_READING = {"unigram": 5.0, "bpe": 0.7}
# Memory of the largest process, for any input (docs/performance.md), and of training the default vocabulary.
WORKER_BYTES, VOCABULARY_BYTES = 380e6, 560e6
SAMPLE_SECONDS = 1.0


@dataclass(frozen=True)
class PlanDescription:
    """What a job would do.

    `bytes` counts decompressed input; the rest is estimated from a sample of its pages.
    """

    inputs: int
    splits: int
    bytes: int
    estimated_characters: int
    estimated_shards: int
    estimated_output_bytes: int
    estimated_disk_bytes: int  # of the output directory while the job runs
    estimated_seconds: float  # of one core, without training the vocabulary
    vocabulary_characters: int  # estimated sample for training a vocabulary; 0 if none is trained
    vocabulary_seconds: float  # of the one process that trains it
    window_bytes: int = 0  # of the largest window of a zst input


def describe_plan(config: PreprocessConfig, output: AnyPath | None = None) -> PlanDescription:
    """Estimate what `run_preprocess` would do with this config. Raises UserError if its inputs are invalid.

    Uses the sizes of the inputs and the first pages of the largest one, read for a second. Folders exclude
    `output`.
    """
    inputs = find_inputs(config, None if output is None else Storage.at(output).url)
    splits = plan_splits(config, inputs)
    if config.vocabulary.model is not None:
        Vocabulary.load(read_given_model(config.vocabulary.model))
    paths = {path for split in splits for path in split.inputs}
    size = sum(split.size for split in splits)
    characters_per_byte, text_per_byte, seconds_per_byte = _sample(
        max(splits, key=lambda split: split.size), config
    )
    characters, text = round(size * characters_per_byte), round(size * text_per_byte)
    columns = sum(COLUMN_BYTES.get(column, 0.0) for column in config.columns)
    output_bytes = round(characters * columns) + (text if "text" in config.columns else 0)
    languages = {language for split in splits for language in split.languages}
    shards = config.shards or -(-characters // (config.shard_characters * len(languages))) or 1
    seconds = size * seconds_per_byte
    trained = config.vocabulary.model is None and not SUBWORD_COLUMNS.isdisjoint(config.columns)
    training = round(characters * (1 - config.validation_fraction)) if trained else 0
    training = min(training, config.vocabulary.sample_characters)
    of_reading = TRAINING_TIMES_READING[config.vocabulary.algorithm] * training / max(characters, 1)
    return PlanDescription(
        inputs=len(paths),
        splits=len(splits),
        bytes=size,
        estimated_characters=characters,
        estimated_shards=(2 if config.validation_fraction else 1) * shards * len(languages),
        estimated_output_bytes=output_bytes,
        # Merged runs are as large as the runs, which are removed only afterwards.
        estimated_disk_bytes=text + max(output_bytes, text if len(splits) >= MERGED_RUNS else 0),
        estimated_seconds=seconds / READING_SHARE,
        vocabulary_characters=training,
        vocabulary_seconds=seconds * of_reading,
        window_bytes=max((zst_window(path) for path in paths if path.endswith(".zst")), default=0),
    )


def _sample(split: InputSplit, config: PreprocessConfig) -> tuple[float, float, float]:
    """Return characters and bytes of clean text, and CPU seconds, per byte after decompression.

    Reads the first pages of a split.
    """
    characters = text = size = 0
    steps = steps_of(config)
    start = time.process_time()
    for page in read_split(split, steps.readers):
        size += len(page.text.encode(errors="replace"))
        for result in extract([page], config.namespaces, config.filters, PageCounters(), steps=steps):
            if isinstance(result, Document):
                characters, text = characters + len(result.text), text + len(result.text.encode())
        if time.process_time() - start >= SAMPLE_SECONDS:
            break
    else:
        # All of it, including what surrounds the texts.
        size = split.size
    size = max(size, 1)
    return characters / size, text / size, (time.process_time() - start) / size
