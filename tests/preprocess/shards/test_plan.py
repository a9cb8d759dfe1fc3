"""Which documents become which shard."""

from pathlib import Path

from preprocess.config import PreprocessConfig
from preprocess.document import Document, document_key
from preprocess.plan import ShardTask, moved_key, plan_shards
from preprocess.runs import KEY_SPACE, Run, dataset_split, validation_draw, write_documents
from preprocess.storage import Storage


def runs_of(storage: Storage, found: list[Document], validation_fraction: float, num_runs: int = 2) -> list[Run]:
    parts = [found[start::num_runs] for start in range(num_runs)]
    files = [write_documents(storage, "runs", str(n), part, validation_fraction) for n, part in enumerate(parts)]
    return [Run(str(n), "", 0, {}, 0, file) for n, file in enumerate(files)]


def english(texts: list[str]) -> list[Document]:
    return [Document(text, "en", "", text) for text in texts]


def test_shards_of_a_language_divide_the_key_space_evenly(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = [Document(str(n), ("sw", "en")[n % 2], "", f"{n:04}" * 25) for n in range(200)]
    config = PreprocessConfig(shard_characters=2_500, validation_fraction=0.1)
    tasks = plan_shards(storage, runs_of(storage, found, 0.1), config)
    train = [task for task in tasks if task.split == "train" and task.language == "en"]
    characters = sum(batch.characters for batch in {batch for task in train for batch in task.batches})
    assert len(train) == -(-characters // 2_500)
    assert [task.low for task in train] == [KEY_SPACE * n // len(train) for n in range(len(train))]
    assert [task.language for task in tasks if task.split == "train"] == sorted(
        task.language for task in tasks if task.split == "train"
    )
    assert tasks[0].path == f"train/data-00000-of-{sum(t.split == 'train' for t in tasks):05}.arrow"
    held = [document.id for task in tasks for _, document in task.documents(storage)]
    assert sorted(held) == sorted(document.id for document in found)
    assert [ShardTask.from_json(task.to_json()) for task in tasks] == tasks


def test_runs_do_not_change_what_a_task_is(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = english([f"text {n}" for n in range(50)])
    config = PreprocessConfig(shards=7)
    one = plan_shards(storage, runs_of(storage, found, 0.05, 1), config)
    many = plan_shards(storage, runs_of(storage, found[::-1], 0.05, 9), config)
    assert [task.content() for task in one] == [task.content() for task in many]


def test_the_split_follows_from_the_text_alone() -> None:
    keys = [document_key(str(number)) for number in range(4000)]
    held = sum(dataset_split(key, 0.05) == "validation" for key in keys)
    assert 140 < held < 260
    assert {dataset_split(key, 0.0) for key in keys} == {"train"}


def test_a_tiny_corpus_moves_the_text_with_the_extreme_draw(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    texts = ["duck", "goose", "swan"]
    by_draw = sorted((validation_draw(document_key(text)), document_key(text).hex()) for text in texts)
    assert moved_key(runs_of(storage, english(texts), 1e-9), 1e-9) == (by_draw[0][1], "validation")
    assert moved_key(runs_of(storage, english(texts), 0.999999), 0.999999) == (by_draw[-1][1], "train")
    assert moved_key(runs_of(storage, english(texts), 0.0), 0.0) is None
    assert moved_key(runs_of(storage, english(["duck", "duck"]), 1e-9), 1e-9) is None
    assert moved_key([], 0.1) is None
    half = by_draw[1][0] / 2**64
    assert moved_key(runs_of(storage, english(texts), half), half) is None
