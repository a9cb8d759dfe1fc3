"""Windows per CPU second: our loader compared with Hugging Face `datasets` (memory-mapped) and a torch DataLoader.

Both read the same shard in one process and yield the same kind of batches: 32 windows, 15% of the subwords
masked, 2,048 positions. The DataLoader reads Arrow batches and masks them in NumPy without a loop over rows.
`derived` is our loader on the same windows in shards without the columns that follow from the text.

    python -m benchmarks.train.loader                        # on windows made of the interpreter's help texts
    python -m benchmarks.train.loader --data DIR             # on the training split of a data directory
    python -m benchmarks.train.loader --objective canine_c   # only ours, with the masks of another objective
    python -m benchmarks.train.loader --objective byte2word  # in at most 682 words
    python -m benchmarks.train.loader --objective canine_c --next-sentence
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from pydoc_data import topics

os.environ.setdefault("OMP_NUM_THREADS", "1")

import datasets
import numpy as np
import pyarrow as pa
import torch

from tokenfree.core.files import hash_file
from tokenfree.core.settings import Slot
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig, WindowConfig
from tokenfree.preprocess.dataset.completion import content_fingerprint
from tokenfree.preprocess.dataset.manifest import (
    DatasetSplit,
    Manifest,
    ShardEntry,
    load_manifest,
    load_vocabulary,
    save_manifest,
)
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.job.finish import count
from tokenfree.preprocess.records import CHARACTER_COLUMNS, COLUMN_TYPES, SCHEMA_VERSION, Document
from tokenfree.preprocess.text.specials import CLS, MASK, SEP
from tokenfree.train.batches.base import predictable
from tokenfree.train.data.loader import Loader

BATCH, LENGTH, MAX_PREDICTIONS = 32, 2048, 80
OBJECTIVES = Slot("tokenfree.train.objectives", "canine_s")
OPTIONS = {"byte2word": {"bytes_per_word": 3}}  # fits the words of nearly every window
COLUMNS = ["codepoints", "subword_ids", "subword_starts", "subword_ends"]


def make_data(folder: Path, num_rows: int = 4096, *, left_out: Collection[str] = ()) -> str:
    """Write a data directory of full windows, a few hundred different ones repeated in random order."""
    text = "\n".join(topics.topics.values())
    documents = [
        Document(f"help:{start}", "en", "", text[start : start + 100_000])
        for start in range(0, len(text), 100_000)
    ]
    config = PreprocessConfig(
        window=WindowConfig(max_characters=2040),
        vocabulary=VocabularyConfig(size=4000),
        columns=tuple(name for name in COLUMN_TYPES if name not in left_out),
    )
    model = train_vocabulary([document.text for document in documents], config.vocabulary, 0)
    parts = iterate_windows(documents, config, Vocabulary(model))
    windows = pa.concat_batches([part.rows for part in parts])
    order = np.random.default_rng(0).integers(0, windows.num_rows, num_rows)
    (folder / "train").mkdir(parents=True)
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "subwords.model").write_bytes(model)
    path = folder / "train" / "data-00000-of-00001.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, windows.schema) as writer:
        for start in range(0, num_rows, 1000):
            writer.write_batch(windows.take(pa.array(order[start : start + 1000])))
    shard = ShardEntry(
        path=f"train/{path.name}",
        language="en",
        rows=num_rows,
        documents=len(documents),
        characters=2000 * num_rows,
        bytes=path.stat().st_size,
        sha256=hash_file(path),
    )
    splits = {"train": DatasetSplit((shard,))}
    save_manifest(
        Storage.at(str(folder)),
        Manifest(
            schema_version=SCHEMA_VERSION,
            config=to_mapping(config),
            config_fingerprint="",
            versions={},
            inputs=(),
            vocabulary_sha256=None,
            vocabulary_size=None,
            splits=splits,
            counters=count((), ()),
            statistics={},
            fingerprint=content_fingerprint(splits, None),
        ),
    )
    return str(folder)


def our_batches(data: str, objective: str, next_sentence: bool) -> Iterator[object]:
    """Yield batches of the loader as in training, but without its thread."""
    config = OBJECTIVES.config_class(objective)
    options = {"next_sentence": True} if next_sentence else {}
    collator = config(**OPTIONS.get(objective, {}), **options).collator(load_vocabulary(data), LENGTH, 0)
    loader = Loader(data, global_batch=BATCH, seed=0, smoothing=0.7, streams=4, collator=collator)
    step = 0
    while True:
        yield loader.batch(step)
        step += 1


def their_batches(data: str) -> Iterator[object]:
    """Yield batches of a memory-mapped dataset: a DataLoader over Arrow batches, masked by whole arrays in NumPy."""
    shards = [
        datasets.Dataset.from_file(f"{data}/{shard.path}")
        for shard in load_manifest(data).splits["train"].shards
    ]
    dataset = datasets.concatenate_datasets(shards).select_columns(COLUMNS).with_format("arrow")
    vocabulary = load_vocabulary(data)
    assert vocabulary is not None
    pieces = vocabulary.pieces
    usable, sizes = predictable(pieces), np.array([len(piece.strip("▁")) for piece in pieces])
    visible = np.zeros((len(pieces), sizes.max()), np.int64)
    for number, piece in enumerate(pieces):
        visible[number, : sizes[number]] = [ord(c) for c in piece.strip("▁")]
    # A piece is replaced by one of its pool: pieces of the same length that begin a word or do not.
    _, pool_of = np.unique(2 * sizes + [piece.startswith("▁") for piece in pieces], return_inverse=True)
    members = np.flatnonzero(usable)[np.argsort(pool_of[usable], kind="stable")]
    pool_sizes = np.bincount(pool_of[usable], minlength=pool_of.max() + 1)
    pool_starts = np.cumsum(pool_sizes) - pool_sizes
    rng = np.random.default_rng(0)

    def collate(table: pa.Table) -> dict[str, torch.Tensor]:
        columns = {name: table[name].combine_chunks() for name in COLUMNS}
        flat = {name: column.flatten().to_numpy() for name, column in columns.items()}
        num_characters, num_pieces = (columns[name].value_lengths().to_numpy() for name in COLUMNS[:2])
        batch = {"codepoints": np.zeros((BATCH, LENGTH), np.int64)}
        batch["mask"] = (np.arange(LENGTH) < num_characters[:, None] + 2).astype(np.int64)
        batch["codepoints"][:, 1:][np.arange(LENGTH - 1) < num_characters[:, None]] = flat["codepoints"]
        batch["codepoints"][:, 0] = CLS
        batch["codepoints"][np.arange(BATCH), num_characters + 1] = SEP
        row_of = np.repeat(np.arange(BATCH), num_pieces)
        candidates = np.flatnonzero(usable[flat["subword_ids"]])
        candidates = candidates[np.argsort(row_of[candidates] + rng.random(len(candidates)))]
        there = np.bincount(row_of[candidates], minlength=BATCH)
        wanted = np.clip(np.round(0.15 * there).astype(int), 1, MAX_PREDICTIONS)
        rank = np.arange(len(candidates)) - np.repeat(np.cumsum(there) - there, there)
        chosen, rank = (array[rank < np.repeat(wanted, there)] for array in (candidates, rank))
        row, ids, starts, ends = (
            row_of[chosen],
            *(flat[name][chosen].astype(np.int64) for name in COLUMNS[1:]),
        )
        pools, actions = pool_of[ids], rng.random(len(chosen))
        others = members[pool_starts[pools] + (rng.random(len(chosen)) * pool_sizes[pools]).astype(int)]
        of_piece = np.repeat(np.arange(len(chosen)), ends - starts)
        offset = np.arange(len(of_piece)) - np.repeat(
            np.cumsum(ends - starts) - (ends - starts), ends - starts
        )
        places = row[of_piece], starts[of_piece] + offset + 1
        new = np.where(actions[of_piece] < 0.8, MASK, visible[others[of_piece], offset])
        batch["codepoints"][places] = np.where(actions[of_piece] < 0.9, new, batch["codepoints"][places])
        for name, values in (("positions", rng.integers(starts, ends) + 1), ("ids", ids), ("target_mask", 1)):
            batch[name] = np.zeros((BATCH, MAX_PREDICTIONS), np.int64)
            batch[name][row, rank] = values
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(range(len(dataset))), BATCH, drop_last=True
    )
    while True:
        yield from torch.utils.data.DataLoader(
            dataset,  # pyright: ignore[reportArgumentType]
            batch_size=None,
            sampler=sampler,
            collate_fn=collate,
        )


def measure(batches: Iterator[object], num_batches: int) -> float:
    """Return the windows per CPU second of all threads of the process."""
    began = time.process_time()
    for _ in range(num_batches):
        next(batches)
    return num_batches * BATCH / (time.process_time() - began)


def check_speed(data: str) -> tuple[float, float]:
    """Return windows and bytes per CPU second of hashing the training shards, which a run does once."""
    shards = load_manifest(data).splits["train"].shards
    began = time.process_time()
    for shard in shards:
        assert hash_file(f"{data}/{shard.path}") == shard.sha256
    seconds = time.process_time() - began
    return sum(shard.rows for shard in shards) / seconds, sum(shard.bytes for shard in shards) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="a data directory whose windows have at most 2,040 characters")
    parser.add_argument("--batches", type=int, default=150, help="of one measurement (default 150)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements of each, taken in turn (default 5)"
    )
    parser.add_argument("--objective", choices=OBJECTIVES.names(), default=OBJECTIVES.default)
    parser.add_argument("--next-sentence", action="store_true", help="windows in two parts")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or make_data(Path(folder) / "data")
        running = {"tokenfree": our_batches(data, options.objective, options.next_sentence)}
        if options.objective == OBJECTIVES.default and not options.next_sentence:
            running["datasets"] = their_batches(data)
        if not options.data:
            small = make_data(Path(folder) / "small", left_out=CHARACTER_COLUMNS)
            running["derived"] = our_batches(small, options.objective, options.next_sentence)
            sizes = [load_manifest(directory).splits["train"].shards[0].bytes for directory in (small, data)]
            share = sizes[0] / sizes[1]
        for batches in running.values():
            measure(batches, 20)
        speeds = {name: [] for name in running}
        for _ in range(options.rounds):
            for name, batches in running.items():
                speeds[name].append(measure(batches, options.batches))
        windows, size = check_speed(data)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(
            f"{name:10} {medians[name]:8,.0f} windows per CPU second ({min(values):,.0f} to {max(values):,.0f})"
        )
    if "datasets" in medians:
        print(f"tokenfree / datasets: {medians['tokenfree'] / medians['datasets']:.2f}")
    if "derived" in medians:
        print(
            f"derived / tokenfree: {medians['derived'] / medians['tokenfree']:.2f}, bytes of the shards {share:.2f}"
        )
    print(
        f"hashing    {windows:8,.0f} windows per CPU second ({size / 1e6:,.0f} MB/s), once: "
        f"{100 * medians['tokenfree'] / windows:.1f}% of the loader's time in the first epoch"
    )


if __name__ == "__main__":
    main()
