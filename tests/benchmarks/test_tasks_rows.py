"""The rows of the queue of fine-tuning fit the recipes and each other, and their examples are parted as is said."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.learning import plan as learning
from benchmarks.tasks.claims import CLAIMS
from benchmarks.tasks.data import PARTS, SOURCES, part_of, path, prepare
from benchmarks.tasks.plan import Entry, Folders, Row, queue
from benchmarks.tasks.rows import NAMES, ROWS, TEXTS
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build, merge, nest
from tokenfree.train.config import FinetuneRecipe, check_finetuning
from tokenfree.workflows.recipes import library

BY_NAME = {row.name: row for row in ROWS}
FOLDERS = Folders("data", "pretrained", "runs")


def recipe(row: Row) -> FinetuneRecipe:
    """The whole recipe of a row."""
    mapping = merge(library.read_based(row.recipe), nest(list(row.overrides.items())))
    return build(FinetuneRecipe, mapping, source=row.name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_a_recipe_that_can_be_trained(row: Row) -> None:
    if row.pretrained is None:
        assert check_finetuning(recipe(row), workers=(1, 1)) == []
    else:
        assert row.pretrained in {each.name for each in learning.ROWS}
        assert not [key for key in row.overrides if key.startswith("model.")]


def test_an_untrained_model_is_that_of_its_pretrained_row() -> None:
    (shown,) = (row for row in learning.ROWS if row.name == "canine-s")
    pretrained = merge(library.read_based(shown.recipe), nest(list(shown.overrides.items())))["model"]
    rows = [row for row in ROWS if row.pretrained == "canine-s"]
    assert len(rows) == len(TEXTS) + len(NAMES)
    for row in rows:
        untrained = recipe(BY_NAME[f"{row.name}-untrained"])
        assert untrained.model == build(type(untrained.model), pretrained, source=row.name)
        assert untrained.train == recipe(row).train


def test_seed_0_of_all_rows_comes_before_seed_1() -> None:
    entries = queue(ROWS)
    assert [entry.seed for entry in entries] == [0] * len(ROWS) + [1] * len(ROWS) + [2] * len(ROWS)
    assert len({entry.name for entry in entries}) == len(entries)


def test_the_sides_of_a_claim_are_rows_of_the_same_examples_and_steps() -> None:
    for claim in CLAIMS:
        for better, worse in claim.sides:
            one, other = BY_NAME[better], BY_NAME[worse]
            assert (one.data, one.steps) == (other.data, other.steps), claim


def test_a_run_begins_with_the_pretrained_run_of_its_seed() -> None:
    entry = Entry(BY_NAME["sst2-canine"], 2)
    assert "--init-from pretrained/canine-s-2 " in entry.command(FOLDERS)
    scratch = Entry(BY_NAME["sst5-ms"], 1).command(FOLDERS)
    assert scratch.startswith("tokenfree finetune classification --train data/sst5/stsa.fine.train --dev ")
    assert "--init-from" not in scratch
    assert scratch.endswith("--train.seed 1")
    assert "--train " not in Entry(BY_NAME["mirrored-2"], 0).command(FOLDERS)


def test_an_example_is_in_one_part_whatever_its_label_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"film number {number}" for number in range(300)]
    (tmp_path / "sst").mkdir()
    train = [f"{label} {text}\n" for label in (0, 1) for text in texts]
    (tmp_path / "sst/stsa.binary.train").write_text("".join(train))
    (tmp_path / "sst/stsa.binary.dev").write_text("1 a film to see twice")
    monkeypatch.setenv("TOKENFREE_TEST_DATA", str(tmp_path))
    prepare(tmp_path / "data", ["sst2"])
    parts = {part: Path(path(tmp_path / "data", "sst2", part)).read_text().splitlines() for part in PARTS}
    assert parts["test"] == ["1 a film to see twice"]
    assert sorted(parts["train"] + parts["dev"]) == sorted(map(str.strip, train))
    held_out = Counter(line[2:] for line in parts["dev"])
    assert 15 <= len(held_out) <= 50
    assert set(held_out.values()) == {2}


def test_pairs_of_one_premise_stay_together_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "snli").mkdir()
    premises = [f"premise {number // 3}" for number in range(300)]
    (tmp_path / "snli/s1.dev").write_text("".join(f"{each}\n" for each in premises))
    (tmp_path / "snli/s2.dev").write_text("".join(f"hypothesis of {each}\n" for each in premises))
    (tmp_path / "snli/labels.dev").write_text("neutral\n" * 300)
    monkeypatch.setenv("TOKENFREE_TEST_DATA", str(tmp_path))
    prepare(tmp_path / "data", ["snli"])
    found = Counter[str]()
    for part in PARTS:
        whole = Path(path(tmp_path / "data", "snli", part))
        first, second, labels = (
            whole.with_name(f"{name}.{part}").read_text().splitlines() for name in ("s1", "s2", "labels")
        )
        assert [f"hypothesis of {each}" for each in first] == second
        assert len(labels) == len(first) > 0
        found.update(set(first))
    assert set(found.values()) == {1}
    assert len(found) == 100


def test_sentences_with_tags_are_parted_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ner-uner-english-ewt").mkdir()
    sentences = [f"1\tAna{number}\tB-PER\n2\tsees\tO\n\n" for number in range(100)]
    (tmp_path / "ner-uner-english-ewt/en_ewt-ud-dev.iob2").write_text("".join(sentences))
    monkeypatch.setenv("TOKENFREE_TEST_DATA", str(tmp_path))
    prepare(tmp_path / "data", ["ewt"])
    parts = [Path(path(tmp_path / "data", "ewt", part)).read_text() for part in PARTS]
    assert sorted("".join(parts).split("\n\n")) == sorted("".join(sentences).split("\n\n"))
    assert all(parts)


def test_a_tenth_goes_to_each_part_that_has_no_file() -> None:
    parts = Counter(part_of(str(number).encode(), ("dev", "test", "test")) for number in range(2000))
    assert {name: round(count / 2000, 1) for name, count in parts.items()} == {"train": 0.7, "dev": 0.1, "test": 0.2}


@pytest.mark.parametrize("folder", [None, "."])
def test_inputs_that_are_not_there_are_named(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder is None:
        monkeypatch.delenv("TOKENFREE_TEST_DATA", raising=False)
    else:
        monkeypatch.setenv("TOKENFREE_TEST_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"TOKENFREE_TEST_DATA.*sst/stsa\.fine\.train"):
        prepare(tmp_path / "data", ["sst5"])


def test_every_set_of_files_has_rows() -> None:
    assert {row.data for row in ROWS if row.has_files} == set(SOURCES)
