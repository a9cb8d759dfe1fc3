"""Classes of the user's own: found in the working directory, told of when they cannot be, refused where not trusted."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.settings import Slot, build, draft, settings, to_mapping

SLOT = Slot("tokenfree.preprocess.text", "none")  # any package: only what is in a module of one's own is chosen here
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
    """The working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def add(folder: Path, module: str, text: str = PART) -> None:
    path = folder / f"{module.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("{name}", f"{module}.Part"), encoding="utf-8")


@pytest.mark.parametrize("module", ["mine_1", "mine_2.parts", "train"])  # of which the last is one of our folders
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
        "there is no key 'part.rat' (did you mean 'rate'?)",
        "there is no key 'othr' (did you mean 'other'?)",
    )


def test_what_a_module_imports_later_is_found_and_hides_nothing(folder: Path) -> None:
    add(folder, "mine_4", PART + "    def late(self): import mine_5; return mine_5.x")
    (folder / "mine_5.py").write_text("x = 5", encoding="utf-8")
    (folder / "yaml.py").write_text("x = 6", encoding="utf-8")
    assert build(Recipe, {"part": "mine_4.Part"}, source="r").part.late() == 5
    assert sys.path.index(str(folder)) == len(sys.path) - 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine_x.Part", "there is no module 'mine_x' (did you mean 'mine_6'?) in the working directory, {folder}, and "
         "none is installed; run the command where the module lies, or install it"),
        ("mine_6.Prat", "the module mine_6 ({folder}/mine_6.py) has no class 'Prat' (did you mean 'Part'?)"),
        ("mine_6.settings", "settings of the module mine_6 ({folder}/mine_6.py) is no class; name the class of the "
         "part's settings"),
        ("mine_6.", "'mine_6.' names no class; give MODULE.CLASS, such as my_module.MeanPool"),
        ("fails.Part", "the module fails cannot be imported: ValueError: of two lines ({folder}/fails.py, line 2); "
         "mend that"),
        ("broken.Part", "the module broken cannot be imported: SyntaxError: invalid syntax ({folder}/broken.py, line "
         "1); mend that"),
        ("leaves.Part", "the module leaves cannot be imported: SystemExit: 3 ({folder}/leaves.py, line 1); mend that"),
        ("lacks.Part", "the module lacks cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all' "
         "({folder}/lacks.py, line 1); mend that"),
        ("plain.Part", "plain.Part is no part for the slot tokenfree.preprocess.text: Part is not decorated with "
         "@settings; Part lacks the field name: str = 'plain.Part' (see docs/own_parts.md)"),
        ("other.Part", "other.Part is no part for the slot tokenfree.preprocess.text: Part.name is 'mine_6.Part', not "
         "'other.Part' as in the recipe (see docs/own_parts.md)"),
        ("typed.Part", "typed.Part is no part for the slot tokenfree.preprocess.text: the fields of Part have types "
         "that cannot be read from YAML: name 'Nowhere' is not defined (see docs/own_parts.md)"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_in_a_line(folder: Path, name: str, message: str) -> None:
    add(folder, "mine_6")
    add(folder, "fails", "x = 1\nraise ValueError('of two\\nlines')")
    add(folder, "broken", "def part(:")
    add(folder, "leaves", "raise SystemExit(3)")
    add(folder, "lacks", "import nowhere_at_all")
    add(folder, "plain", "class Part: ...")
    add(folder, "other", "from mine_6 import Part")
    add(folder, "typed", PART.replace("int", "'Nowhere'"))
    with pytest.raises(UserError) as refused:
        build(Recipe, {"part": {"name": name, "rate": 3}}, source="r")
    assert str(refused.value) == "r: part: " + message.replace("{folder}", str(folder))


def test_what_is_not_trusted_is_not_run(folder: Path) -> None:
    for module in ("mine_7", "mine_8"):
        add(folder, module, f"open('{module}.ran', 'w').close()\n{PART}")
    mapping = {"part": {"name": "mine_7.Part", "rate": 3, "more": 1}, "other": "x"}
    with pytest.raises(own_code.UntrustedCode) as refused, own_code.trusting(["mine_8.Part"], "runs/mine"):
        build(Recipe, mapping, source="r")
    assert str(refused.value) == (
        "runs/mine names code outside tokenfree, mine_7.Part, which is run when it is opened; give --trust-code (in "
        "Python trust_code=True) if you trust it"
    )
    assert not list(folder.glob("*.ran"))
    with own_code.trusting(["mine_8.Part"], "runs/mine"):
        recipe = build(Recipe, {"part": "mine_8.Part"}, source="r")
    with own_code.trusting(None, "runs/mine"):
        build(Recipe, {"part": "mine_7.Part"}, source="r")
    assert own_code.classes_in(recipe) == {"mine_8.Part": type(recipe.part)}


def test_other_mistakes_of_trusted_settings_stay_what_they_are(folder: Path) -> None:
    add(folder, "mine_9")
    with pytest.raises(UserError, match="r: other: should be a valid integer"), own_code.trusting(["mine_9.Part"], ""):
        build(Recipe, {"part": "mine_9.Part", "other": "x"}, source="r")


def test_a_changed_file_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(folder, "mine_10")
    recipe = build(Recipe, {"part": "mine_10.Part"}, source="r")
    before = own_code.hashes(recipe)
    own_code.warn_of_changes(recipe, before, "runs/mine")
    assert not caplog.messages
    add(folder, "mine_10", PART + "# changed")
    own_code.warn_of_changes(recipe, before, "runs/mine")
    assert caplog.messages == [
        "runs/mine: the code of mine_10.Part has changed since the run was begun; what it computes may be other than "
        "in training"
    ]
