"""Hyperparameters, their conditions, and the searchers that draw from them."""

import contextlib
import itertools
import json
import time
import tracemalloc
from collections import Counter
from typing import Any, cast

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.sweep import recipe as spaces
from tokenfree.train.sweep.history import History
from tokenfree.train.sweep.recipe import Hyperparameter, SweepRecipe, ordered
from tokenfree.train.sweep.search import Proposer, candidates, num_foreseen, plan

SEARCHERS = spaces.SEARCHER.names()
ATTENTION = "model.trunk.attention.name"
ALPHA = "model.trunk.attention.alpha"


def make(searcher: Any = "even", **over: Any) -> SweepRecipe:
    space = {"train.seed": {"integer": [0, 9]}, "train.learning_rate": {"uniform": [0.1, 0.2]}}
    return build(SweepRecipe, {"base": {}, "space": space, "searcher": searcher, **over}, source="test")


def first(sweep: SweepRecipe, number: int = 40) -> list[dict[str, Any]]:
    history = History(seeds=1, reports=1)
    return list(itertools.islice(candidates(sweep, history), number))


def test_knobs_give_their_ends_and_no_more() -> None:
    assert [Hyperparameter(choice=("a", "b")).value(q) for q in (0.0, 0.49, 0.5, 0.999)] == [
        "a",
        "a",
        "b",
        "b",
    ]
    assert [Hyperparameter(integer=(2, 6)).value(q) for q in (0.0, 0.2, 0.999)] == [2, 3, 6]
    assert Hyperparameter(uniform=(-1, 1)).value(0.25) == -0.5
    assert Hyperparameter(log_uniform=(0.001, 0.1)).value(0.5) == 0.01


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("uniform", (0.99991, 0.99999)),
        ("uniform", (0.12345, 0.12346)),
        ("uniform", (-100.0001, -100.0)),
        ("uniform", (1e9, 1e9 + 1)),
        ("log_uniform", (1.23456e-4, 1.23457e-4)),
        ("log_uniform", (0.30001, 0.30002)),
    ],
)
def test_value_lies_in_a_narrow_range(kind: str, ends: tuple[float, float]) -> None:
    hyperparameter = build(Hyperparameter, {kind: ends}, source="test")
    values = {hyperparameter.value(n / 50) for n in range(50)}
    assert all(ends[0] <= value <= ends[1] for value in values)
    assert len(values) == 50
    assert all(len(repr(value)) <= 13 for value in values), "as few digits as the range allows"


@pytest.mark.parametrize("ends", [(0.1, 0.1), (0.30000000000000004, 0.30000000000000004)])
def test_value_of_a_single_number(ends: tuple[float, float]) -> None:
    assert {Hyperparameter(uniform=ends).value(q) for q in (0.0, 0.7)} == {ends[0]}
    assert {Hyperparameter(log_uniform=ends).value(q) for q in (0.0, 0.7)} == {ends[0]}


@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_value_of_a_wide_range_has_four_digits(kind: str) -> None:
    hyperparameter = build(Hyperparameter, {kind: (0.001, 0.1)}, source="test")
    values = [hyperparameter.value(n / 97) for n in range(97)]
    assert values == [float(f"{value:.4g}") for value in values]


@pytest.mark.parametrize("searcher", SEARCHERS)
@pytest.mark.parametrize("ends", [[0, 2**31 - 1], [-(2**63), 2**64 - 1]])
def test_candidates_of_a_huge_range_take_no_memory(searcher: str, ends: list[int]) -> None:
    sweep = make(
        searcher, space={"train.seed": {"integer": ends}, "train.length": {"grid": [8, 16]}}, trials=20
    )
    history = History(seeds=1, reports=1)
    began = time.process_time()
    tracemalloc.start()
    try:
        for setting in range(10):
            values = next(candidates(sweep, history))
            assert ends[0] <= values["train.seed"] <= ends[1]
            history.record({"event": "propose", "setting": setting, "values": values})
            report = {"report": 1, "validation_loss": float(setting)}
            event = {"event": "report", "trial": f"trial_{setting:03d}", "verdict": "stop", "report": report}
            history.record(event)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 20


def test_plan_refuses_a_grid_that_nobody_could_train() -> None:
    sweep = make("grid", space={"train.seed": {"integer": [0, 2**31 - 1]}})
    with pytest.raises(
        UserError, match=r"space: the grid has 2,147,483,648 settings. Give `trials`, or another"
    ):
        plan(Proposer(sweep, cast(Any, None)))


@pytest.mark.parametrize("searcher", [name for name in SEARCHERS if name != "grid"])
def test_settings_are_the_same_each_time_and_cover_the_space(searcher: str) -> None:
    settings = first(make(searcher))
    assert settings == first(make(searcher))
    assert settings != first(make(searcher, seed=1))
    assert {values["train.seed"] for values in settings} == set(range(10))


def test_even_settings_leave_no_gap() -> None:
    rates = sorted(values["train.learning_rate"] for values in first(make()))
    assert max(b - a for a, b in itertools.pairwise(rates)) < 0.1 / 10


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_knob_plays_a_part_only_under_its_condition(searcher: str) -> None:
    space = {
        ATTENTION: {"choice": ["full", "multi_scale"]},
        ALPHA: {"choice": [-1, 0, 1], "when": {ATTENTION: "multi_scale"}},
        "train.seed": {"choice": [7], "when": {ALPHA: [0, 1]}},
        "train.length": {"choice": [64], "when": {"model.width": 5}},
    }
    settings = first(make(searcher, space=space), 30)
    assert {(ALPHA in values) for values in settings if values[ATTENTION] == "full"} == {False}
    assert {values[ALPHA] for values in settings if values[ATTENTION] == "multi_scale"} == {-1, 0, 1}
    assert all(("train.seed" in values) == (values.get(ALPHA) in (0, 1)) for values in settings)
    assert not any("train.length" in values for values in settings)


def test_a_grid_holds_every_combination() -> None:
    space = {"train.seed": {"integer": [0, 2]}, "train.length": {"choice": [8, 16]}}
    assert len({tuple(values.values()) for values in first(make("grid", space=space))}) == 6


def test_a_grid_that_is_cut_short_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    space = {"train.seed": {"integer": [0, 2]}, "train.length": {"choice": [8, 16]}}
    for trials, is_reported in ((2, True), (6, False)):
        caplog.clear()
        proposer = Proposer(make("grid", space=space, trials=trials), cast(Any, None))
        with contextlib.suppress(AttributeError):  # it has no subject that could check the settings
            plan(proposer)
        text = f"trials: the first {trials} settings of the grid are tried, not all combinations"
        assert (caplog.messages == [text]) == is_reported


def test_grids_are_crossed_and_other_knobs_are_drawn_anew() -> None:
    grid = {"train.seed": {"grid": [0, 1]}, "train.length": {"grid": [8, 16, 24]}}
    sweep = make(space={**grid, "train.learning_rate": {"uniform": [0.1, 0.2]}})
    settings = first(sweep, 6)
    assert len({(values["train.seed"], values["train.length"]) for values in settings}) == 6
    assert len({values["train.learning_rate"] for values in settings}) == 6


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_settings_that_are_foreseen_do_not_depend_on_what_trials_report(searcher: str) -> None:
    sweep = make(searcher, space={"train.seed": {"integer": [0, 99]}})
    foreseen = num_foreseen(sweep, 20)
    assert 0 < foreseen <= 20
    before, reported = (History(seeds=1, reports=1) for _ in range(2))
    for setting, values in enumerate(first(sweep, foreseen - 1)):
        reported.record({"event": "propose", "setting": setting, "values": values})
        report = {"report": 1, "validation_loss": float(values["train.seed"])}
        trial = f"trial_{setting:03d}"
        reported.record({"event": "report", "trial": trial, "verdict": "go", "report": report})
    two = (itertools.islice(candidates(sweep, history), foreseen) for history in (before, reported))
    assert len({json.dumps(list(settings)) for settings in two}) == 1


def test_conditions_in_a_circle_are_refused() -> None:
    with pytest.raises(UserError, match=r"a, b need each other"):
        ordered(
            {"a": Hyperparameter(choice=(1,), when={"b": 1}), "b": Hyperparameter(choice=(1,), when={"a": 1})}
        )


@pytest.mark.parametrize("objectives", [["validation_loss"], ["validation_loss", "characters_per_second"]])
def test_tpe_goes_where_the_loss_is_low(objectives: list[str]) -> None:
    """With a loss whose valley lies at 0.12, most suggestions after the start are near; those of "random" are not."""
    space = {"train.learning_rate": {"uniform": [0.0, 1.0]}, "train.seed": {"choice": [0, 1]}}
    sweep = make("tpe", space=space, objectives=objectives)
    history = History(seeds=1, reports=1)
    for setting in range(30):
        values = next(candidates(sweep, history))
        history.record({"event": "propose", "setting": setting, "values": values})
        loss = abs(values["train.learning_rate"] - 0.12)
        report = {"report": 1, "validation_loss": loss, "characters_per_second": 1000.0 - loss}
        trial = f"trial_{setting:03d}"
        history.record({"event": "report", "trial": trial, "verdict": "go", "report": report})
    late = [abs(values["train.learning_rate"] - 0.12) < 0.15 for values in history.proposed[15:]]
    assert sum(late) > len(late) / 2


def test_every_value_of_every_choice_gets_its_share() -> None:
    """A recurrence can fall in step with a number of choices, and then leaves some of them out for very long."""
    choices = {f"train.a{n}": list(range(n)) for n in range(2, 8)}
    sweep = make(space={key: {"choice": values} for key, values in choices.items()})
    drawn = first(sweep, 48)
    for key, values in choices.items():
        counts = Counter(setting[key] for setting in drawn)
        assert all(abs(counts[value] - 48 / len(values)) <= 3 for value in values), (key, counts)


def test_tpe_knows_keys_under_conditions() -> None:
    rate = {"uniform": [0.0, 1.0], "when": {"train.seed": 1}}
    sweep = make(
        {"name": "tpe", "startup": 4}, space={"train.seed": {"choice": [0, 1]}, "train.learning_rate": rate}
    )
    history = History(seeds=1, reports=1)
    for setting in range(16):
        values = next(candidates(sweep, history))
        assert ("train.learning_rate" in values) == (values["train.seed"] == 1)
        history.record({"event": "propose", "setting": setting, "values": values})
        report = {"report": 1, "validation_loss": values.get("train.learning_rate", 0.5)}
        trial = f"trial_{setting:03d}"
        history.record({"event": "report", "trial": trial, "verdict": "go", "report": report})
    rates = [
        values["train.learning_rate"] for values in history.proposed[8:] if "train.learning_rate" in values
    ]
    assert len(rates) > 4
    assert sum(rates) / len(rates) < 0.4
