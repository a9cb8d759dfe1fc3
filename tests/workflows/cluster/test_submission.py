"""What a submission takes along, where its places are, and what of it is refused."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.workflows.cluster import actions as local_code
from tokenfree.workflows.cluster.actions import Submission, submission

STORES = ("--data", "s3://bucket/en", "--output", "s3://bucket/run")


def sent(*words: str, **options: Any) -> Submission:
    module = importlib.import_module(f"tokenfree.workflows.commands.{words[0]}")
    return submission(words, module, **options)


def test_a_recipe_by_name_needs_no_file(folder: Path) -> None:
    made = sent("pretrain", "canine-s-tiny", *STORES, "--workers", "2", "--train.steps", "5")
    assert made.words == ("pretrain", "canine-s-tiny", *STORES, "--workers", "2", "--train.steps", "5")
    assert not made.files


def test_recipes_go_with_those_they_name(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "recipes" / "base.yaml").write_text("base: canine-s-tiny\n")
    (folder / "mine.yaml").write_text("base: recipes/base.yaml\n")
    (folder.parent / "outside.yaml").write_text("train: {steps: 3}\n")
    made = sent("pretrain", "./mine.yaml", "--config=../outside.yaml", *STORES)
    assert made.words[1:3] == ("mine.yaml", "--config=given/outside.yaml")
    assert sorted(made.files) == ["given/outside.yaml", "mine.yaml", "recipes/base.yaml"]

    (folder / "sweep.yaml").write_text("base: mine.yaml\nspace: {variant: {choice: [canine-s-tiny, other.yaml]}}\n")
    (folder / "other.yaml").write_text("base: canine-s-tiny\n")
    made = sent("sweep", "sweep.yaml", *STORES)
    assert sorted(made.files) == ["mine.yaml", "other.yaml", "recipes/base.yaml", "sweep.yaml"]

    (folder / "far.yaml").write_text("base: ../outside.yaml\n")
    with pytest.raises(UserError, match=r"outside.yaml lies outside the working directory"):
        sent("pretrain", "far.yaml", *STORES)


def test_own_parts_go_with_what_they_import_and_nothing_else_does(folder: Path) -> None:
    (folder / "parts.py").write_text("import os\nfrom helpers.pool import mean\n")
    (folder / "helpers" / "deep").mkdir(parents=True)
    (folder / "helpers" / "__pycache__").mkdir()
    for name in ("__init__.py", "pool.py", "deep/__init__.py", "table.json", ".env", "__pycache__/pool.pyc"):
        (folder / "helpers" / name).write_text("")
    (folder / "helpers" / "pool.py").write_text("import third\nimport torch\n")
    (folder / "third.py").write_text("import parts\n")
    (folder / "secrets.py").write_text("KEY = 1\n")
    (folder / ".env").write_text("KEY=1\n")
    (folder / "mine.yaml").write_text("model: {downsampler: {name: parts.MeanPool}}\n")
    expected = ["helpers/__init__.py", "helpers/deep/__init__.py", "helpers/pool.py", "helpers/table.json", "parts.py",
                "third.py"]  # fmt: skip
    assert sorted(sent("pretrain", "mine.yaml", *STORES).files) == sorted([*expected, "mine.yaml"])
    by_option = sent("pretrain", "canine-s-tiny", *STORES, "--model.downsampler.name", "parts.MeanPool")
    assert sorted(by_option.files) == expected


def test_a_large_file_in_a_package_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_code, "MOST_BYTES", 10)
    (folder / "parts.py").write_text("# longer than that\n")
    with pytest.raises(UserError, match=r"parts.py has .* MB, and would be sent with the code of parts"):
        sent("pretrain", "canine-s-tiny", *STORES, "--model.downsampler", "parts.MeanPool")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pretrain", "canine-s-tiny", "--data", "data/en", "--output", "s3://b/r"), "--data data/en: a path of one"),
        (("pretrain", "canine-s-tiny", "--data", "/data", "--output", "s3://b/r"), "--data /data: a path of one"),
        (("pretrain", "canine-s-tiny", "--data", "s3://b/d", "--output", "/shared/../r"), "--output /shared/../r: a"),
        (("pretrain", "canine-s-tiny", *STORES, "--init-from", "run"), "--init-from run: a path of one machine"),
        (("sweep", "three-knobs-tiny", "--data", "s3://b/d", "--output", "sweep"), "--output sweep: a path of one"),
        (("preprocess", "--wikipedia", "a.bz2", "--output", "s3://b/d"), "--wikipedia a.bz2: a path of one machine"),
        (("preprocess", "--books", "s3://b/books", "--output", "s3://b/d", "--vocabulary.model", "m.model"),
         "--vocabulary.model m.model: a path of one machine"),
        (("demo",), "--output demo: a path of one machine"),
        (("report", "s3://b/r", "--output", "page.html"), "--output page.html: a path of one machine"),
        (("analyze", "ranks", "s3://b/r", "--output", "s3://b/a.md", "a.png"), "--output a.png: a path of one machine"),
        (("pretrain", "canine-s-tiny", "--data", "s3://key:word@b/d", "--output", "s3://b/r"), "holds a password"),
        (("pretrain", "canine-s-tiny", "--data", "s3://b/d"), "arguments are required: --output (see tokenfree pretr"),
        (("pretrain", "canine-s-tiny", *STORES, "--datta", "x"), "unknown option --datta (did you mean --data?)"),
        (("pretrain", "none.yaml", *STORES), "recipe none.yaml: no such file"),
    ],
)  # fmt: skip
def test_what_the_nodes_do_not_have_is_refused(words: tuple[str, ...], told: str, folder: Path) -> None:
    with pytest.raises(UserError) as error:
        sent(*words, shared=["/shared"])
    assert told in str(error.value)


def test_paths_in_recipes_are_looked_at_too(folder: Path) -> None:
    (folder / "mine.yaml").write_text("wikipedia: [dumps/a.bz2]\n")
    with pytest.raises(UserError, match=r"recipe mine.yaml: wikipedia dumps/a.bz2: a path of one machine"):
        sent("preprocess", "mine.yaml", "--output", "s3://b/d")
    with pytest.raises(UserError, match=r"mine.yaml: wikipedia: dumps/a.bz2 is relative to the working directory"):
        sent("preprocess", "mine.yaml", "--output", "d", is_here=True)


def test_a_password_in_a_recipe_is_refused(folder: Path) -> None:
    (folder / "mine.yaml").write_text("books: [ftp://me:word@host/books]\n")
    with pytest.raises(UserError, match=r"recipe mine.yaml: books: an address holds a password") as told:
        sent("preprocess", "mine.yaml", "--output", "s3://b/d")
    assert "word@" not in str(told.value)


def test_a_shared_folder_is_where_it_is(folder: Path) -> None:
    words = ("sweep", "three-knobs-tiny", "--data", "/mnt/shared/en", "--output", "/mnt/shared/sweep")
    assert sent(*words, shared=["/mnt/shared"]).words == words


def test_on_this_machine_paths_become_whole(folder: Path) -> None:
    made = sent("pretrain", "canine-s-tiny", "--data", "en", "--output=runs/a", is_here=True)
    assert made.words == ("pretrain", "canine-s-tiny", "--data", f"{folder}/en", f"--output={folder}/runs/a")
    made = sent("preprocess", "--wikipedia", "dumps/*.bz2", "s3://b/x", "--output", "d", "--", "--flag=d", is_here=True)
    assert made.words == ("preprocess", "--wikipedia", f"{folder}/dumps/*.bz2", "s3://b/x", "--output", f"{folder}/d",
                          "--", "--flag=d")  # fmt: skip
    assert sent("demo", is_here=True).words == ("demo", "--output", f"{folder}/demo")


def test_what_is_written_is_no_file_to_send(folder: Path) -> None:
    (folder / "a.md").write_text("of before")
    made = sent("analyze", "ranks", "s3://b/r", "--output", "a.md", "a.png", is_here=True)
    assert made.words[3:] == ("--output", f"{folder}/a.md", f"{folder}/a.png")
    assert not made.files


def test_only_the_value_of_the_option_is_moved(folder: Path) -> None:
    made = sent("finetune", "ner", "--init_from", "ner", "--output", "pos", "--task.words_column", "pos", is_here=True)
    assert made.words == ("finetune", "ner", "--init_from", f"{folder}/ner", "--output", f"{folder}/pos",
                          "--task.words_column", "pos")  # fmt: skip
    made = sent("finetune", "--init-from", "ner", "ner", "--output=pos", is_here=True)
    assert made.words == ("finetune", "--init-from", f"{folder}/ner", "ner", f"--output={folder}/pos")
    made = sent("preprocess", "--wikipedia", "a", "a.bz2", "--output", "d", "--vocabulary.model=d", is_here=True)
    assert made.words == ("preprocess", "--wikipedia", f"{folder}/a", f"{folder}/a.bz2", "--output", f"{folder}/d",
                          f"--vocabulary.model={folder}/d")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "cpus"),
    [
        (("pretrain", "canine-s-tiny", *STORES), 1),
        (("pretrain", "canine-s-tiny", *STORES, "--workers", "2:3"), 0),
        (("sweep", "three-knobs-tiny", *STORES), 0),
        (("preprocess", "--books", "s3://b/x", "--output", "s3://b/d", "--workers", "4"), 4),
        (("preprocess", "--books", "s3://b/x", "--output", "s3://b/d", "--runner", "flink"), 0),
        (("evaluate", "s3://b/run", "--data", "s3://b/d"), 1),
    ],
)
def test_what_computes_by_itself_gets_cpus(words: tuple[str, ...], cpus: int, folder: Path) -> None:
    assert sent(*words).cpus == cpus
