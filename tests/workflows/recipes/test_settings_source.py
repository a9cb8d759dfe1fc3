"""Settings classes read from their source: without importing torch, also of parts that are new."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tokenfree.preprocess.common.settings import Slot
from tokenfree.workflows.recipes import settings_source
from tokenfree.workflows.recipes.settings_source import twin, variants

CONFIG = '''
import dataclasses
import decimal as numbers
from typing import Annotated, Literal

from pydantic import Field

from tokenfree.preprocess.common.settings import settings
from tokenfree.train.model.embedders.characters import InputConfig as Base
from tokenfree.train.model.embedders.hashing import MAX_HASHES

raise RuntimeError("imported")

Size = Annotated[int, Field(le=2 * MAX_HASHES)]
LIMIT: int = 3


@settings
class Config(Base):
    """A part."""

    name: Literal["{name}"] = "{name}"
    size: Size = LIMIT + 1
    share: float = float(numbers.Decimal("0.5"))
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    flag = True
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with two parts, neither of which can be imported, and a file that is no part."""
    folder = tmp_path / "parts_without_import"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(CONFIG.replace("{name}", name))
    (folder / "helper.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder.name


def test_parts_are_read_and_not_imported(package: str) -> None:
    parts = variants(Slot(package, "one"))
    assert list(parts) == ["one", "two"]
    made = parts["two"]()
    assert (made.name, made.size, made.share, made.names) == ("two", 4, 0.5, {})
    assert made.positions == "learned"  # of the base
    assert parts["two"].__doc__ == "A part."
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(parts["two"])}
    assert "flag" not in fields
    assert fields["size"].__metadata__[0].metadata[0].le == 32


def test_what_the_source_alone_does_not_tell_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_a_function.py").write_text(
        "from tokenfree.preprocess.common.settings import settings\n"
        "def double(number):\n    return 2 * number\n"
        "SIZE = double(4)\n"
        "@settings\nclass Config:\n    size: int = SIZE\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert twin("with_a_function", "Config")().size == 8


def test_what_is_not_there() -> None:
    with pytest.raises(LookupError, match="no settings class Nothing"):
        twin("tokenfree.train.config", "Nothing")
    with pytest.raises(LookupError, match="no settings class Manifest"):
        twin("tokenfree.preprocess.dataset.manifest", "Manifest")
    with pytest.raises(LookupError):
        twin("tokenfree.train.nothing", "Config")


def test_defaults_that_are_settings_keep_what_they_set() -> None:
    sweep = twin("tokenfree.train.sweep.space.recipe", "SweepRecipe")
    budget = next(field for field in dataclasses.fields(sweep) if field.name == "budget")
    assert (budget.default.steps, budget.default.flops) == (100, None)  # pyright: ignore[reportAttributeAccessIssue]
    assert settings_source.twin(sweep.__module__, "Budget") is budget.type


@pytest.mark.parametrize("command", ["pretrain", "sweep", "preprocess"])
def test_keys_are_listed_without_torch_and_ray(command: str) -> None:
    program = (
        "import sys\n"
        "from tokenfree.workflows.cli import main\n"
        "try:\n"
        f"    main([{command!r}, '--help-keys'])\n"
        "finally:\n"
        "    sys.stderr.write(' '.join(m for m in ('torch', 'ray', 'apache_beam') if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stderr == ""
    assert "\tdefault " in done.stdout
