"""`--profile` leaves a trace that can be read, of steps after the first ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]


def test_a_trace_of_three_steps(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    lines: list[Any] = []
    pretrain(make_recipe(), corpus, str(tmp_path), profile=True, progress=lines.append)
    (path,) = (tmp_path / "profile").iterdir()
    assert path.name == "steps_00000003_00000005.json"
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
    assert names.count("forward") == names.count("backward") == names.count("update") == 3
    assert any(line.get("event") == "profile" and str(path) in line["message"] for line in lines)


def test_short_runs(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(steps=4), corpus, str(tmp_path / "four"), profile=True)
    assert [path.name for path in (tmp_path / "four" / "profile").iterdir()] == ["steps_00000003_00000004.json"]
    pretrain(make_recipe(steps=1), corpus, str(tmp_path / "one"), profile=True)
    assert not (tmp_path / "one" / "profile").exists()
