"""Custom classes: found in the working directory, reported if they are missing, refused if not trusted."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.settings import Slot, build, draft, settings
from tokenfree.core.settings_values import code_hashes, to_mapping, warn_of_changes

# Any package: only names in custom modules are chosen here.
SLOT = Slot("tokenfree.preprocess.text", "none")
PART = """
from tokenfree.core.settings import settings

@settings
class Part:
    name: str = "{name}"
    rate: int = 4
"""


@settings
class Recipe:
    part: Annotated[Any, SLOT]
    other: int = 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, whose code is trusted; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    with own_code.trusting(True, "test"):
        yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def add(folder: Path, module: str, text: str = PART) -> None:
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("{name}", f"{module}.Part"), encoding="utf-8")


# Of which the last is one of our folders.
@pytest.mark.parametrize("module", ["mine_1", "mine_2.parts", "train"])
def test_a_class_of_the_working_directory_is_a_part(folder: Path, module: str) -> None:
    add(folder, module)
    recipe = build(Recipe, {"part": {"name": f"{module}.Part", "rate": "3"}}, source="r")
    assert type(recipe.part).__module__ == module
    assert to_mapping(recipe)["part"] == {"name": f"{module}.Part", "rate": 3}
    assert build(Recipe, to_mapping(recipe), source="r") == recipe
    assert build(Recipe, {"part": f"{module}.Part"}, source="r").part.rate == 4


def test_all_problems_are_told_with_their_keys(folder: Path) -> None:
    add(folder, "mine_3")
    made = draft(Recipe, {"part": {"name": "mine_3.Part", "rat": 3}, "othr": 1})
    assert made.problems == (
        "there is no key 'part.rat' (did you mean 'part.rate'?)",
        "there is no key 'othr' (did you mean 'other'?)",
    )


def test_what_a_module_imports_later_is_found_and_hides_nothing(folder: Path) -> None:
    add(folder, "mine_4", PART + "    def late(self): import mine_5; return mine_5.x")
    (folder / "mine_5.py").write_text("x = 5", encoding="utf-8")
    (folder / "yaml.py").write_text("x = 6", encoding="utf-8")
    assert build(Recipe, {"part": "mine_4.Part"}, source="r").part.late() == 5
    assert sys.path.index(str(folder)) == len(sys.path) - 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mine_x.Part", "ModuleNotFoundError: No module named 'mine_x'"),
        ("mine_6.Prat", "AttributeError: module 'mine_6' has no attribute 'Prat'"),
        ("mine_6.", "AttributeError: module 'mine_6' has no attribute ''"),
        ("fails.Part", "ValueError: of two lines"),
        ("broken.Part", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("leaves.Part", "SystemExit: 3"),
        ("lacks.Part", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_what_cannot_be_imported_is_reported_in_a_line(folder: Path, name: str, reason: str) -> None:
    add(folder, "mine_6")
    add(folder, "fails", "x = 1\nraise ValueError('of two\\nlines')")
    add(folder, "broken", "def part(:")
    add(folder, "leaves", "raise SystemExit(3)")
    add(folder, "lacks", "import nowhere_at_all")
    with pytest.raises(UserError) as refused:
        build(Recipe, {"part": {"name": name, "rate": 3}}, source="r")
    assert str(refused.value) == (
        f"r: part: {name!r} cannot be imported from the working directory, {folder}, or as installed: "
        f"{reason}. Give MODULE.CLASS, run the command where the module lies, or fix the module (--debug shows where "
        "it failed)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("class Part: ...", "Part is not decorated with @settings"),
        ("Part = 3", "its settings do not inherit object"),
        (PART.replace("{name}", "other"), "Part needs the field name: str = 'mine_7.Part'"),
        (PART.replace("int", "'Nowhere'"), "its fields have types that cannot be read from YAML: name 'Nowhere' is not "
         "defined"),
    ],
)  # fmt: skip
def test_what_is_no_part_is_reported_in_a_line(folder: Path, text: str, problem: str) -> None:
    add(folder, "mine_7", text)
    with pytest.raises(UserError) as refused:
        build(Recipe, {"part": "mine_7.Part"}, source="r")
    assert str(refused.value) == (
        f"r: part: mine_7.Part is not a part for the slot text: {problem} (see docs/add_a_part.md)"
    )


def test_what_is_not_trusted_is_not_run(folder: Path) -> None:
    add(folder, "mine_8", f"open('mine_8.ran', 'w').close()\n{PART}")
    for given in ({"name": "mine_8.Part", "rate": 3, "more": 1}, "mine_8.Part", "mine_8.__init__"):
        with pytest.raises(own_code.UntrustedCode) as refused, own_code.trusting(False, "runs/mine"):
            build(Recipe, {"part": given, "other": "x"}, source="r")
    assert (
        "runs/mine names code outside tokenfree, mine_8.__init__, which is run when it is opened; give "
        in (str(refused.value))
    )
    assert not list(folder.glob("*.ran"))
    with own_code.trusting(True, "runs/mine"):
        recipe = build(Recipe, {"part": "mine_8.Part"}, source="r")
    assert list(folder.glob("*.ran"))
    with own_code.trusting(False, "runs/mine"):  # imported already
        assert build(Recipe, {"part": "mine_8.Part"}, source="r") == recipe


def test_nothing_is_imported_by_way_of_a_module_that_is(folder: Path) -> None:
    add(folder, "mine_9", "def __getattr__(name): import fails")
    add(folder, "mine_10.inner")
    with pytest.raises(UserError, match="No module named 'fails'"):
        build(Recipe, {"part": "mine_9.Part"}, source="r")
    __import__("mine_10")
    for name in ("mine_9.Part", "mine_10.inner.Part", "mine_10.inner"):
        with pytest.raises(own_code.UntrustedCode), own_code.trusting(False, "runs/mine"):
            build(Recipe, {"part": name}, source="r")


def test_other_mistakes_of_trusted_settings_stay_what_they_are(folder: Path) -> None:
    add(folder, "mine_11")
    with pytest.raises(UserError, match="r: other: should be a valid integer"), own_code.trusting(True, ""):
        build(Recipe, {"part": "mine_11.Part", "other": "x"}, source="r")


def test_a_changed_file_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(folder, "mine_12")
    recipe = build(Recipe, {"part": "mine_12.Part"}, source="r")
    before = code_hashes(recipe)
    warn_of_changes(recipe, before, "runs/mine")
    assert not caplog.messages
    add(folder, "mine_12", PART + "# changed")
    for _ in range(3):  # as a command that opens the run three times
        warn_of_changes(recipe, before, "runs/mine")
    assert caplog.messages == ["runs/mine: the code of mine_12.Part has changed since the run began"]
