"""Datasets by name, as a local folder in the hub's format: Parquet, and a card with configs and named classes."""

from pathlib import Path
from typing import Any, get_args

import datasets
import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.tasks.classification import Config
from tokenfree.train.tasks.examples.tagged import TaggedOptions, read_tagged
from tokenfree.train.tasks.examples.texts import GLUE, TextOptions, read_texts
from tokenfree.train.tasks.labelled_texts import GlueName, MetricName
from tokenfree.train.tasks.metrics import NUMBER_METRICS

TEXT, CLASS = datasets.Value("string"), datasets.ClassLabel


def save(folder: Path, configs: dict[str, dict[str, datasets.Dataset]]) -> str:
    """A folder as the hub has it."""
    card = ["---", "configs:"]
    for config, splits in configs.items():
        card += [f"- config_name: {config}", "  data_files:"]
        (folder / config).mkdir(parents=True)
        for split, dataset in splits.items():
            dataset.to_parquet(str(folder / config / f"{split}-00000-of-00001.parquet"))
            card += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (folder / "README.md").write_text("\n".join([*card, "---", "# Geese"]))
    return str(folder)


def rows(columns: dict[str, list[Any]], **features: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Nothing is left in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def geese(tmp_path_factory: pytest.TempPathFactory) -> str:
    label, kinds = CLASS(names=["bad", "good"]), datasets.Sequence(CLASS(names=["O", "B-BIRD", "I-BIRD"]))
    reviews = rows({"review": ["honk", "hiss"], "label": [1, 0]}, review=TEXT, label=label)
    hidden = rows({"review": ["honk"], "label": [-1]}, review=TEXT, label=label)
    tagged = rows(
        {"tokens": [["grey", "goose"], ["sky"]], "ner_tags": [[1, 2], [0]]},
        tokens=datasets.Sequence(TEXT),
        ner_tags=kinds,
    )
    configs = {"reviews": {"train": reviews, "test": hidden}, "names": {"train": tagged}}
    return save(tmp_path_factory.mktemp("hub") / "geese", configs)


def test_classes_have_their_names(geese: str) -> None:
    found = read_texts(f"hf:{geese}:reviews")
    assert [(one.key, one.text, one.label) for one in found] == [
        ("geese:reviews:0", "honk", "good"),
        ("geese:reviews:1", "hiss", "bad"),
    ]
    assert [one.label for one in read_texts(f"hf:{geese}:reviews@test")] == [None]


def test_tags_have_their_names(geese: str) -> None:
    found = read_tagged(f"hf:{geese}:names@train")
    assert [(one.key, one.words, one.tags) for one in found] == [
        ("geese:names@train:0", ("grey", "goose"), ("B-BIRD", "I-BIRD")),
        ("geese:names@train:1", ("sky",), ("O",)),
    ]


def test_a_dataset_saved_on_disk(tmp_path: Path) -> None:
    rows({"text": ["a"], "label": ["x"]}, text=TEXT, label=TEXT).save_to_disk(str(tmp_path / "saved"))
    assert [(one.key, one.label) for one in read_texts(f"hf:{tmp_path}/saved")] == [("saved:0", "x")]


def test_mistakes(geese: str) -> None:
    for address, said in (
        (f"hf:{geese}", r"^hf:/\S+geese cannot be read .Config name is missing"),
        (f"hf:{geese}:reviews@dev", 'Unknown split "dev"'),
        (f"hf:{geese}:ducks", "'ducks' not found"),
        ("hf:", "no dataset is named. Give hf:NAME"),
    ):
        with pytest.raises(UserError, match=said):
            read_texts(address)
    with pytest.raises(UserError, match=r"reviews:1: the label 'bad' is not a class"):
        read_texts(f"hf:{geese}:reviews", TextOptions(labels=("good",)))
    with pytest.raises(UserError, match=r"names:0: the tag 'B-BIRD' of 'grey' is not a tag"):
        read_tagged(f"hf:{geese}:names", TaggedOptions(labels=("O",)))


@pytest.mark.parametrize("name", GLUE)
def test_each_task_of_glue(tmp_path: Path, name: str) -> None:
    task = GLUE[name]
    label = CLASS(names=list(task.labels)) if task.labels else datasets.Value("float32")
    texts = {column: TEXT for column in (task.text, task.second) if column}
    labels = [0, 1, 0] if task.labels else [2.5, 0.0, 5.0]
    features = {**texts, "label": label, "idx": datasets.Value("int32")}
    columns = {column: [f"{column} {n}" for n in range(3)] for column in texts}
    split = "validation"
    told = rows({**columns, "label": labels, "idx": [0, 1, 2]}, **features)
    folder = save(tmp_path / "glue", {name: {split: told}})
    found = read_texts(f"hf:{folder}:{name}@{split}", build(Config, {"glue": name}, source="test").options)
    assert [one.label for one in found] == ([task.labels[n] for n in (0, 1, 0)] if task.labels else labels)
    assert [one.text for one in found] == columns[task.text]
    assert [one.second for one in found] == (columns[task.second] if task.second else [None] * 3)
    assert [one.key for one in found] == [f"glue:{name}@{split}:{n}" for n in range(3)]


def test_the_table_of_glue() -> None:
    for task in GLUE.values():
        assert set(task.metrics) <= set(get_args(MetricName))
        assert all((metric in NUMBER_METRICS) != bool(task.labels) for metric in task.metrics)
        assert ("f1" in task.metrics) == (task.positive in task.labels)
    assert list(GLUE) == list(get_args(GlueName))
