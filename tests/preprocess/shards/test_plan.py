"""Which documents become which shard."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Document, document_key
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
        write_documents(storage, "runs", str(n), part, validation_fraction) for n, part in enumerate(parts)
    ]
    return [SortedRun(str(n), "", 0, {}, 0, file) for n, file in enumerate(files)]


def tasks_of(storage: Storage, runs: list[SortedRun], config: PreprocessConfig) -> list[ShardTask]:
    rule = decide_partitioning(runs, config.validation_fraction)
    return plan_shards(storage, partitions(runs, rule), config)


def english(texts: list[str]) -> list[Document]:
    return [Document(text, "en", "", text) for text in texts]


def test_shards_of_a_language_divide_the_key_space_evenly(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = [Document(str(n), ("sw", "en")[n % 2], "", f"{n:04}" * 25) for n in range(200)]
    config = PreprocessConfig(shard_characters=2_500, validation_fraction=0.1)
    tasks = tasks_of(storage, runs_of(storage, found, 0.1), config)
    train = [task for task in tasks if task.partition == Partition("train", "en")]
    characters = sum(
        batch.characters for batch in {batch for task in train for batch in task.documents.batches}
    )
    assert len(train) == -(-characters // 2_500)
    bounds = [KEY_SPACE * n // len(train) for n in range(len(train) + 1)]
    assert [task.documents.ranges for task in train] == [((low, high),) for low, high in pairwise(bounds)]
    languages = [task.partition.language for task in tasks if task.partition.dataset_split == "train"]
    assert languages == sorted(languages)
    assert tasks[0].path == f"train/data-00000-of-{len(languages):05}.arrow"
    held = [document.id for task in tasks for _, document in task.documents.merged(storage)]
    assert sorted(held) == sorted(document.id for document in found)
    assert [checked(ShardTask, json.loads(json.dumps(asdict(task)))) for task in tasks] == tasks


def test_runs_do_not_change_what_a_task_is(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = english([f"text {n}" for n in range(50)])
    config = PreprocessConfig(shards=7)
    one = tasks_of(storage, runs_of(storage, found, 0.05, 1), config)
    many = tasks_of(storage, runs_of(storage, found[::-1], 0.05, 9), config)
    assert [task.content() for task in one] == [task.content() for task in many]


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
        whole = partitions(runs, rule)
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
            tasks = plan_shards(storage, whole, config)
            built = [
                (task.partition, found.id) for task in tasks for _, found in task.documents.merged(storage)
            ]
            assert sorted(built) == sorted(wanted)
            assert all(list(task.documents.merged(storage)) for task in tasks)  # none is empty


def test_a_part_names_only_the_batches_that_it_needs(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    runs = runs_of(storage, english([f"text {n}" for n in range(30)]), 0.0, num_runs=30)
    (whole,) = partitions(runs, Partitioning(0.0)).values()
    part = whole.between(0, KEY_SPACE // 2)
    assert 0 < len(part.batches) < 30
    assert list(part.merged(storage)) == list(DocumentSet(part.ranges, whole.batches).merged(storage))
