"""What the docs say of the code is what the code is: the site builds, the picture and the maps are of this house."""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import tokenfree
from tests.conftest import REPOSITORY, SOURCE
from tests.test_imports import FLOORS, PACKAGES
from tokenfree.preprocess.config import Filter
from tokenfree.train.model.common import slots
from tokenfree.train.model.common.attention import Core
from tokenfree.train.objectives.base import Objective
from tokenfree.train.optimizers.base import OptimizerConfig
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library
from tools.docs import list_commands, list_signatures
from tools.docs.draw_architecture import PICTURE
from tools.docs.list_commands import _commands, reference
from tools.docs.list_keys import PAGE, page
from tools.docs.write_schemas import FOLDER as SCHEMAS
from tools.docs.write_schemas import files as schemas


def folders_of(package: str) -> set[str]:
    """The folders of a package that hold code."""
    return {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}


def folders_in(text: str) -> set[str]:
    """The names of folders in a piece of Markdown: `name/` in code style."""
    return set(re.findall(r"`(\w+)/`", text))


def table_rows(name: str) -> list[list[str]]:
    """The cells of each row of the tables in a file of the repository."""
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    rows = (re.split(r"(?<!\\)\|", line.strip("|")) for line in lines if line.startswith("|"))
    return [[cell.strip() for cell in row] for row in rows]


BUILD = """
import runpy, sys
sys.modules.update(torch=None, ray=None, apache_beam=None)  # the site builds without them
runpy.run_module("mkdocs", run_name="__main__")
"""


def test_the_site_builds_without_a_warning_and_shows_the_api(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD, "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "site" / "commands.html").read_text(encoding="utf-8")
    assert "<li><code>--init-from RUN|FOLDER</code>: " in commands
    assert "<li><code>similarity</code>: Spearman's" in commands
    page = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for name in ("load_encoder", "load_windows", "run_preprocess", "verify", "pretrain", "evaluate", "run_sweep",
                 "export_run", "import_folder", "PretrainResult", "SweepResult", "Manifest"):  # fmt: skip
        assert re.search(rf'id="tokenfree\.[\w.]+\.{name}"', page), name
    assert "decompressed bytes that a worker reads" in page  # what a docstring says of a field
    comment = "share of targets whose correct answer had the highest logit"  # the comment of a field
    assert comment in page


def test_the_picture_names_all_folders() -> None:
    words = set(re.findall(r"\w+", PICTURE.read_text(encoding="utf-8")))
    missing = {folder for package in PACKAGES for folder in {package, *folders_of(package)}} - words
    assert not missing, "draw it again: make docs"


def test_the_page_of_keys_lists_the_keys_that_there_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: make docs"
    rows = table_rows("docs/keys.md")
    assert {len(row) for row in rows} == {4}
    rates = [row[1:3] for row in rows if row[0] == "`train.learning_rate`"]
    assert rates == [["float > 0", "`0.001`"], ["float > 0", "`0.0001`"]]  # of pretraining and of fine-tuning


def test_the_page_of_commands_lists_every_command_and_option() -> None:
    sections = dict(re.findall(r"^###? (.+)\n((?:(?!##).*\n?)*)", reference(), re.MULTILINE))
    parser = cli._parser(cli._imported(cli.command_names()))
    leaves = [leaf for name, command in _commands(parser) for leaf in cli._leaves(command)]
    assert {leaf.prog.removeprefix("tokenfree ") for leaf in leaves} == sections.keys() - {"cluster"}
    text = list_commands.PAGE.read_text(encoding="utf-8")
    assert text == list_commands.page(), "write it again: make docs"
    common = text.partition(list_commands.MARK)[0]
    for leaf in leaves:
        listed = common + sections[leaf.prog.removeprefix("tokenfree ")]
        for option in (option for action in leaf._actions for option in action.option_strings):
            assert re.search(rf"^- `.*{option}\b.*`", listed, re.MULTILINE), (leaf.prog, option)


def test_the_api_page_has_the_signatures_of_all_names() -> None:
    text = list_signatures.PAGE.read_text(encoding="utf-8")
    assert text == list_signatures.page(), "write it again: make docs"
    labels = set(re.findall(r"^(\w+)[.(]", text, re.MULTILINE))
    assert {name for name in tokenfree.__all__ if name != "__version__"} <= labels


SLOTS = {
    "model.embedder": (slots.EmbedderConfig, slots.Embedder),
    "model.downsampler": (slots.DownsamplerConfig, slots.Downsampler),
    "model.upsampler": (slots.UpsamplerConfig, slots.Upsampler),
    "model.trunk.layer": (slots.LayerConfig, slots.Layer),
    "model.trunk.attention": (slots.AttentionConfig, Core),
    "model.trunk.positions": (slots.PositionsConfig, slots.Positions),
    "model.trunk.segments": (slots.SegmentsConfig,),
    "model.neighbours": (slots.NeighboursConfig,),
    "objective": (Objective,),
    "train.optimizer": (OptimizerConfig,),
    "filters.also": (Filter,),
}


def test_the_table_of_slots_has_all_required_methods() -> None:
    rows = {row[0].strip("`"): row for row in table_rows("docs/add_a_part.md") if "(" in row[1]}
    assert rows.keys() == SLOTS.keys()
    for key, classes in SLOTS.items():
        listed = re.findall(r"`(\w+)\(([^)]*)\)`", " ".join(rows[key][1:3]))
        required = {
            (name, ", ".join(list(inspect.signature(getattr(kind, name)).parameters)[1:]))
            for kind in classes
            for name in kind.__abstractmethods__
        }
        assert {item for item in listed if item[0] != "forward" or item in required} == required, key
        documented = " ".join(kind.__doc__ or "" for kind in classes)
        forwards = re.findall(r"`(forward\([^)]*\))", documented)
        assert forwards == [] or f"`{forwards[0]}`" in rows[key][2], key


def test_code_fits_the_site_at_1400_pixels() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md")}
    for name, text in pages.items():
        for block in re.findall(r"^ *```.*?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
            assert [line for line in block.splitlines() if len(line) > 108] == [], name


@pytest.mark.parametrize(("word", "name"), [
    ("install", "install"), ("GPU", "install"), ("license", "install"), ("resume", "resume"), ("Slurm", "slurm"),
    ("batch size", "training"), ("tokenizer", "sources"), ("sweep", "sweeps"), ("evaluate", "quickstart"),
    ("download", "quickstart"), ("memory", "troubleshooting"),
])  # fmt: skip
def test_a_word_that_users_search_is_in_a_heading_of_its_page(word: str, name: str) -> None:
    page = (REPOSITORY / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(rf"(?im)^#+ .*\b{word}", page)


def test_contributing_names_the_folders_in_import_order() -> None:
    rows = {row[0].strip("`/"): row[2] for row in table_rows("CONTRIBUTING.md") if len(row) == 3}
    for package in PACKAGES:
        groups = [folders_in(group) for group in rows[package].split(" · ")]
        floors = [floor & folders_of(package) for floor in FLOORS.get(package, [])]
        assert [group for group in groups if group] == [floor for floor in floors if floor], package


def test_troubleshooting_quotes_messages_that_there_are() -> None:
    """Each quoted message, except its words in capitals, is in a string of the code."""
    strings = "\n".join(_strings())
    first = [
        row[0].strip("`") for row in table_rows("docs/troubleshooting.md") if re.fullmatch("`[^`]+`", row[0])
    ]
    assert len(first) > 20
    for message in first:
        for piece in re.split(r"\b(?!RAY_|TOKENFREE_|SHA)[A-Z]{2,}\b", message):
            assert piece.strip() in strings, message


def _strings() -> Iterator[str]:
    """All strings of the four packages; what is put into them is left out."""
    for path in (path for package in PACKAGES for path in (SOURCE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_schemas_are_of_these_settings() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()} == schemas()


def test_every_recipe_fits_a_schema_and_misspelt_ones_do_not() -> None:
    checks = {
        path.stem: jsonschema.Draft202012Validator(json.loads(path.read_text("utf-8")))
        for path in SCHEMAS.iterdir()
    }
    for name in library.names():
        assert any(check.is_valid(library.read(name)) for check in checks.values()), name
    pretraining = checks["pretrain"]
    for recipe, path in (
        ({"train": {"step": 3}}, "$.train"),
        ({"model": {"embedder": {"name": "codepoint_hash", "bucket": 3}}}, "$.model.embedder"),
        ({"model": {"trunk": {"layers": "many"}}}, "$.model.trunk.layers"),
    ):
        assert [error.json_path for error in pretraining.iter_errors(recipe)] == [path]
    assert pretraining.is_valid({"model": {"embedder": {"name": "my_parts.Embedder", "mine": 3}}})
