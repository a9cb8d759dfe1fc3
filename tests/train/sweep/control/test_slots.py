"""What every searcher and every scheduler is, found by listing their folders."""

import dataclasses
import inspect
from typing import Any

import pytest

from tokenfree.core.settings import Slot
from tokenfree.train.sweep.control.slots import Scheduler, Searcher

SLOTS = {"searchers": Searcher, "schedulers": Scheduler}
VARIANTS = [
    (protocol, name, Slot(f"tokenfree.train.sweep.{folder}", name).config_class(name))
    for folder, protocol in SLOTS.items()
    for name in Slot(f"tokenfree.train.sweep.{folder}", "").names()
]


@pytest.mark.parametrize(("protocol", "name", "config"), VARIANTS, ids=[name for _, name, _ in VARIANTS])
def test_a_variant_is_one_of_its_slot_and_says_what_it_is(protocol: type, name: str, config: Any) -> None:
    assert protocol in config.__mro__
    assert config().name == name
    for field in dataclasses.fields(config):
        assert f"    {field.name}: " in (inspect.getdoc(config) or ""), f"{name} does not say what {field.name} is"


def test_what_is_not_said_has_a_default() -> None:
    """A searcher of one method, and a scheduler of one, are whole."""

    class Repeated(Searcher):
        name = "repeated"

        def candidates(self, sweep: Any, history: Any) -> Any:
            yield {}

    class Endless(Scheduler):
        name = "endless"

        def verdict(self, history: Any, trial: Any, report: Any) -> Any:
            return "go"

    sweep: Any = None
    assert (list(Repeated().problems(sweep)), Repeated().is_finite(), Repeated().foreseen(3)) == ([], False, 3)
    assert (list(Endless().problems(sweep)), Endless().stops_early()) == ([], True)
