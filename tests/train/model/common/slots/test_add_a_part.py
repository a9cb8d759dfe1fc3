"""The page "Add a part": its example is a part that trains, and the refusal that it shows is the one there is."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.train.model.common import test_slots
from tests.train.model.conftest import AddPart
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.model.common import slots
from tokenfree.workflows.recipes import library

PAGE = (REPOSITORY / "docs" / "add_a_part.md").read_text(encoding="utf-8")
SLOT, NAME = "downsampler", "gated_pool"
PACKAGE = "tokenfree.train.model.downsamplers"
SMALL = {"train": {"steps": 1, "global_batch": 2, "streams": 1, "micro_batch": None}}


def block(language: str) -> str:
    """The one block of the page in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def part(add_part: AddPart) -> None:
    """The example of the page, in its slot."""
    assert f"`train/model/downsamplers/{NAME}.py`:\n\n```python" in PAGE
    add_part(PACKAGE, NAME, block("python"))


@pytest.mark.usefixtures("part")
def test_the_example_takes_a_training_step(corpus: str, tmp_path: Path) -> None:
    (tmp_path / "gated.yaml").write_text(block("yaml"), encoding="utf-8")
    mapping = library.read_based(str(tmp_path / "gated.yaml"))
    loop = Loop(build(PretrainRecipe, merge(mapping, SMALL), source="gated.yaml"), corpus)
    down: Any = loop.encoder.downsampler
    before = down.score.weight.clone()
    lines = list(loop.steps(1))
    assert type(down).__name__ == "GatedPool"
    assert lines[0]["loss"] > 1
    assert (down.score.weight != before).all()


@pytest.mark.usefixtures("part")
def test_the_example_passes_the_tests_of_its_slot() -> None:
    for test in (
        test_slots.test_contract,
        test_slots.test_costs_count_every_parameter,
    ):
        test(SLOT, NAME)
    config = test_slots.SLOTS[SLOT].config_class(NAME)
    test_slots.test_every_config_says_what_it_is_where_it_comes_from_and_what_its_fields_mean(config)


@pytest.mark.usefixtures("part")
def test_the_example_averages_real_characters() -> None:
    down = (
        test_slots.SLOTS[SLOT].config_class(NAME)(rate=3).build(test_slots.Dimensions(8, 2, 8, 0.0, "gelu"))
    )
    x, mask = torch.randn(1, 7, 8), torch.tensor([[True] * 5 + [False] * 2])
    units, valid, grouping, characters = down(x, mask)
    assert valid.tolist() == [[True, True, False]]
    assert grouping.unit_BC.tolist() == [[0, 0, 0, 1, 1, 1, 2]]
    weights = down.score(x[0, 3:5]).softmax(dim=0)
    torch.testing.assert_close(units[0, 1], (weights * x[0, 3:5]).sum(dim=0))
    assert characters is x


def test_the_refusal_of_the_page(add_part: AddPart) -> None:
    add_part(PACKAGE, NAME, block("python").replace("def build", "def built"))
    with pytest.raises(UserError) as refused:
        build(PretrainRecipe, {"model": {SLOT: {"name": NAME}}}, source="recipe gated.yaml")
    assert f"`{refused.value}`" in PAGE.splitlines()


def test_the_table_of_slots_names_what_there_is() -> None:
    rows = re.findall(r"^\| `model\.(\S+)` \| `(\S+)/` \| `(\w+)` \| `(.*?)` \|$", PAGE, re.MULTILINE)
    assert {key for key, *_ in rows} == set(test_slots.SLOTS)
    for key, folder, config, module in rows:
        assert test_slots.SLOTS[key].package == "tokenfree." + folder.replace("/", ".")
        assert test_slots.SLOTS[key].base == f"{slots.__name__}.{config}"
        assert module == "torch.nn.Module" or module in vars(slots)
