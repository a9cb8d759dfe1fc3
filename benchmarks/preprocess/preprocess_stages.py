"""CPU time of each stage of preprocessing.

    python -m benchmarks.preprocess.preprocess_stages --model subwords.model [DUMP]

Every stage runs separately over all pages of a small dump; the best of three runs counts. The cost of windows
is split by building them with more and more columns. The unit is milliseconds per megabyte of clean text.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.preprocess.whole_job import find_dump
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import COLUMNS, Column, PreprocessConfig
from tokenfree.preprocess.documents.extract import PageCounters, document_of
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.job.inputs import identity
from tokenfree.preprocess.job.job import SHARDS
from tokenfree.preprocess.job.output import begin
from tokenfree.preprocess.job.read import read_one_split
from tokenfree.preprocess.job.steps import build_one_shard, make_plan
from tokenfree.preprocess.records import Document, InputSplit, Page
from tokenfree.preprocess.shards.sorted_runs import write_documents
from tokenfree.preprocess.sources.compression import read_blocks
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits, read_split
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.wikitext.cleaner import clean

ROUNDS = 3
# Columns are built in this order, each together with the previous ones.
FEATURES: dict[str, tuple[Column, ...]] = {
    "codepoints, white space": ("codepoints", "whitespace"),
    "words": ("word_starts", "word_ends"),
    "subwords": ("subword_ids", "subword_starts", "subword_ends"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dump", nargs="?", type=Path, help="default: the English excerpt of the test data")
    parser.add_argument(
        "--model", required=True, help="a SentencePiece model, such as vocabulary/subwords.model"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        dump = options.dump or find_dump(Path(folder))
        config = PreprocessConfig(wikipedia=(str(dump),), expand_templates=False)
        config = replace(config, vocabulary=replace(config.vocabulary, model=options.model))
        megabytes, stages = measure(config, Path(folder))
    total = sum(stages.values())
    print(f"{megabytes:.2f} MB of clean text; {megabytes / total:.2f} MB per CPU second")
    for name, seconds in stages.items():
        print(f"{name:28}{1000 * seconds / megabytes:8.1f} ms/MB{seconds / total:8.1%}")


def measure(config: PreprocessConfig, folder: Path) -> tuple[float, dict[str, float]]:
    """Return the megabytes of clean text and the CPU seconds of each stage."""
    (split,) = plan_splits(config)
    pages = [page for page in read_split(split) if isinstance(page, Page)]
    articles = [page for page in pages if page.namespace == 0 and not page.redirect]
    texts = [clean(page.text, page.site) for page in articles if page.site]
    found = [document_of(page, config.filters, PageCounters()) for page in articles]
    documents = [document for document in found if isinstance(document, Document)]
    decompress = cpu_seconds(lambda: drain(split))
    stages = {
        "decompress": decompress,
        "find and parse pages": cpu_seconds(lambda: list(read_split(split))) - decompress,
        "clean wikitext": cpu_seconds(
            lambda: [clean(page.text, page.site) for page in articles if page.site]
        ),
        "normalise": cpu_seconds(lambda: [normalize(text) for text in texts]),
        "sort and write runs": cpu_seconds(
            lambda: write_documents(Storage.at(str(folder)), "runs/r.arrow", documents, 0.05)
        ),
        **measure_windows(documents, config),
    }
    stages["write, hash, count"] = building(config, str(folder / "output")) - sum(
        stages[name] for name in ("sentences", "cut windows", *FEATURES)
    )
    return sum(len(document.text) for document in documents) / 1e6, stages


def measure_windows(documents: list[Document], config: PreprocessConfig) -> dict[str, float]:
    """Return the CPU seconds of the stages of `iterate_windows`."""
    model = config.vocabulary.model
    assert model is not None
    vocabulary = Vocabulary.load(Path(model).read_bytes())
    sentences = cpu_seconds(lambda: [sentence_starts(document.text) for document in documents])
    columns: Any = ("document", "language", "text", "sentence_starts")
    before = build_seconds(documents, replace(config, columns=columns), vocabulary)
    stages = {"sentences": sentences, "cut windows": before - sentences}
    for name, more in FEATURES.items():
        columns += more
        wanted = tuple(column for column in COLUMNS if column in columns)
        seconds = build_seconds(documents, replace(config, columns=wanted), vocabulary)
        stages[name] = seconds - before
        before = seconds
    return stages


def build_seconds(documents: list[Document], config: PreprocessConfig, vocabulary: Vocabulary) -> float:
    """Return the CPU seconds of building all windows with the columns of `config`."""
    return cpu_seconds(lambda: list(iterate_windows(documents, config, vocabulary)))


def building(config: PreprocessConfig, output: str) -> float:
    """Return the CPU seconds of building all shards from runs, without loading the vocabulary."""
    inputs = find_inputs(config)
    splits = plan_splits(config, inputs)
    job = begin(Storage.at(output), identity(config, inputs), config, inputs, splits)
    for index in range(len(splits)):
        read_one_split(job, index)
    num_shards = len(make_plan(job).shards)
    build_one_shard(job, num_shards - 1)  # the smallest shard; this loads the vocabulary, which is then kept
    job.storage.remove(SHARDS)
    return cpu_seconds(lambda: [build_one_shard(job, index) for index in range(num_shards)], rounds=1)


def drain(split: InputSplit) -> int:
    """Decompress a split and return the number of events."""
    return sum(1 for _ in read_blocks(split.inputs[0], split.format, split.start, split.end))


def cpu_seconds(function: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the CPU seconds of the best of a few runs."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
