"""A sweep that goes on tells of what is known before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.settings import build, to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep import run
from tokenfree.train.sweep.history import JOURNAL, History, Journal
from tokenfree.train.sweep.recipe import SweepRecipe


def test_what_is_known_is_told_before_anything_starts(
    corpus: str, make_recipe: Callable[..., PretrainRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def started(proposer: Any, planned: Any, folder: Path, progress: Any) -> History:
        """In place of Ray: one trial ends, then the command is killed."""
        told.append("started")
        journal = Journal(folder / JOURNAL)
        report = {"report": 1, "step": 2, "validation_loss": 3.0}
        journal.append({"event": "start", "settings": 2})
        journal.append({"event": "propose", "setting": 0, "values": planned.proposed[0]})
        journal.append({"event": "report", "trial": "trial_000", "verdict": "stop", "report": report})
        journal.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_run", started)
    space = {"train.learning_rate": {"grid": [0.01, 0.02]}}
    mapping = {"base": to_mapping(make_recipe()), "space": space, "searcher": "grid", "budget": {"steps": 2}}
    sweep = build(SweepRecipe, mapping, source="test")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run.run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=lambda *news: told.append(news))
    first, (event, history), second = told
    assert (first, event, second) == ("started", {"event": "resume"}, "started")
    assert [trial.state for trial in history.trials.values()] == ["stopped"]
