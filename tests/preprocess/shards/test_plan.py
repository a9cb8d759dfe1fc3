"""Which documents become which shard."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Document, document_key
from tokenfree.preprocess.shards import sorted_runs
from tokenfree.preprocess.shards.plan import (
    DocumentSet,
    ShardTask,
    decide_partitioning,
    partitions,
    plan_shards,
)
from tokenfree.preprocess.shards.sorted_runs import (
    KEY_SPACE,
    Partition,
    Partitioning,
    SortedRun,
    key_position,
    validation_draw,
    write_documents,
)


def runs_of(
    storage: Storage, found: list[Document], validation_fraction: float, num_runs: int = 2
) -> list[SortedRun]:
    parts = [found[start::num_runs] for start in range(num_runs)]
    files = [
        write_documents(storage, f"runs/{n}.arrow", part, validation_fraction) for n, part in enumerate(parts)
    ]
    return [SortedRun(str(n), "", 0, {}, 0, *file) for n, file in enumerate(files)]


def whole_of(runs: list[SortedRun], rule: Partitioning) -> dict[Partition, DocumentSet]:
    return partitions([run.file for run in runs], rule)


def documents_of(
    storage: Storage, tasks: list[ShardTask], whole: dict[Partition, DocumentSet]
) -> list[Document]:
    """The documents of which the shards are built."""
    parts = [replace(whole[task.partition], ranges=task.ranges) for task in tasks]
    return [document for part in parts for _, document in part.merged(storage)]


def english(texts: list[str]) -> list[Document]:
    return [Document(text, "en", "", text) for text in texts]


def test_shards_of_a_language_divide_the_key_space_evenly(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = [Document(str(n), ("sw", "en")[n % 2], "", f"{n:04}" * 25) for n in range(200)]
    config = PreprocessConfig(shard_characters=2_500, validation_fraction=0.1)
    whole = whole_of(runs_of(storage, found, 0.1), Partitioning(0.1))
    tasks, empty = plan_shards(storage, whole, config)
    assert not empty
    train = [task for task in tasks if task.partition == Partition("train", "en")]
    assert len(train) == -(-whole[Partition("train", "en")].characters // 2_500)
    bounds = [KEY_SPACE * n // len(train) for n in range(len(train) + 1)]
    assert [task.ranges for task in train] == [((low, high),) for low, high in pairwise(bounds)]
    languages = [task.partition.language for task in tasks if task.partition.dataset_split == "train"]
    assert languages == sorted(languages)
    assert tasks[0].path == f"train/data-00000-of-{len(languages):05}.arrow"
    held = [document.id for document in documents_of(storage, tasks, whole)]
    assert sorted(held) == sorted(document.id for document in found)
    assert [checked(ShardTask, json.loads(json.dumps(asdict(task)))) for task in tasks] == tasks


def test_runs_do_not_change_what_a_task_is(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = english([f"text {n}" for n in range(50)])
    config = PreprocessConfig(shards=7)
    one, many = (
        plan_shards(storage, whole_of(runs_of(storage, cut, 0.05, runs), Partitioning(0.05)), config)
        for cut, runs in ((found, 1), (found[::-1], 9))
    )
    assert one[0] == many[0]


def test_the_split_follows_from_the_text_alone() -> None:
    keys = [document_key(str(number)) for number in range(4000)]
    held = sum(Partitioning(0.05).dataset_split(key) == "validation" for key in keys)
    assert 140 < held < 260
    assert {Partitioning(0.0).dataset_split(key) for key in keys} == {"train"}


def test_a_tiny_corpus_moves_the_text_with_the_extreme_draw(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    texts = ["duck", "goose", "swan"]

    def decide(texts: list[str], fraction: float) -> Partitioning:
        return decide_partitioning(runs_of(storage, english(texts), fraction), fraction)

    keys = sorted(map(document_key, texts), key=validation_draw)
    assert decide(texts, 1e-9) == Partitioning(1e-9, key_position(keys[0]), "validation")
    assert decide(texts, 0.999999) == Partitioning(0.999999, key_position(keys[-1]), "train")
    assert decide(texts, 0.0) == Partitioning(0.0)
    assert decide(["duck", "duck"], 1e-9) == Partitioning(1e-9)
    assert decide_partitioning([], 0.1) == Partitioning(0.1)
    half = validation_draw(keys[1]) / 2**64
    assert decide(texts, half) == Partitioning(half)


def test_each_document_is_in_the_partition_that_the_rule_says(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = [
        *english(["duck", "goose", "swan", "crane"]),
        Document("de", "de", "", "goose"),
        Document("x", "de", "", "y"),
    ]
    for fraction in (1e-9, 0.5, 0.999999):
        runs = runs_of(storage, found, fraction)
        rule = decide_partitioning(runs, fraction)
        assert checked(Partitioning, asdict(rule)) == rule
        whole = whole_of(runs, rule)
        held = {
            (partition, document.id)
            for partition, documents in whole.items()
            for _, document in documents.merged(storage)
        }
        wanted = {
            (Partition(rule.dataset_split(document_key(document.text)), document.language), document.id)
            for document in found
        }
        assert held == wanted
        assert {partition.dataset_split for partition, _ in held} == {"train", "validation"}
        for shards in (1, 40):
            config = PreprocessConfig(shards=shards, validation_fraction=fraction)
            tasks, empty = plan_shards(storage, whole, config)
            built = [
                (task.partition, document.id)
                for task in tasks
                for document in documents_of(storage, [task], whole)
            ]
            assert sorted(built) == sorted(wanted)
            assert all(documents_of(storage, [task], whole) for task in tasks)
            assert not any(list(part.merged(storage)) for part in empty)


def test_planning_reads_no_documents_where_sidecars_and_indexes_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is at most an index per run, however many shards there are."""
    storage = Storage.at(str(tmp_path))
    monkeypatch.setattr(sorted_runs, "BATCH_CHARACTERS", 100)
    (whole,) = whole_of(
        runs_of(storage, english([f"text number {n}" for n in range(3000)]), 0.0, 30), Partitioning(0.0)
    ).values()
    reads: list[list[tuple[str, int, int]]] = []
    read_ranges = Storage.read_ranges
    monkeypatch.setattr(
        Storage, "read_ranges", lambda self, ranges: reads.append(ranges) or read_ranges(self, ranges)
    )
    for shards in (2, 20, 60):
        reads.clear()
        tasks, _ = plan_shards(storage, {Partition("train", "en"): whole}, PreprocessConfig(shards=shards))
        assert len(tasks) == shards
        indexes = {(path, part.start, part.end) for path, part in whole.sources}
        assert {place for places in reads for place in places} <= indexes
        assert len(reads) <= 30
        assert shards > 2 or not reads
