"""Where trials fit."""

from collections.abc import Mapping
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.tune import Placement, find_placement


def place(nodes: list[Mapping[str, float]], threads: int = 1, **over: Any) -> Placement:
    mapping = {"base": {"train": {"threads": threads}}, "space": {"train.seed": {"choice": [0]}}, **over}
    return find_placement(build(SweepRecipe, mapping, source="test"), [{}], nodes)


def test_trials_side_by_side() -> None:
    assert place([{"CPU": 2}]) == Placement({"CPU": 1}, 2)
    assert place([{"CPU": 3}, {"CPU": 4}], threads=2) == Placement({"CPU": 2}, 3)
    assert place([{"CPU": 16, "GPU": 1}, {"CPU": 16}]) == Placement({"CPU": 1, "GPU": 1}, 1)
    assert place([{"CPU": 16, "GPU": 1}], gpus_per_worker=0.25).concurrent == 4
    assert place([{"CPU": 8}], concurrent=3).concurrent == 3
    assert place([{"CPU": 2}], concurrent=9).concurrent == 2  # more than have room are not begun


def test_a_trial_that_can_never_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"a trial needs 4 CPU: no machine of the cluster has as much"):
        place([{"CPU": 2}, {"CPU": 3}], threads=4)
    with pytest.raises(UserError, match=r"a trial needs 1 CPU and 1 GPU: no machine"):
        place([{"CPU": 8}], gpus_per_worker=1)
