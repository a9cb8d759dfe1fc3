"""Ray's token: on unless the user says otherwise, and a file that nobody else reads."""

import os
import stat
from pathlib import Path

import pytest

from tokenfree.workflows.cluster import tokens


def test_it_is_made_once_and_for_this_user_alone(folder: Path) -> None:
    tokens.use()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    tokens.make()
    made = tokens.path().read_text()
    assert len(made) == 64
    assert stat.S_IMODE(tokens.path().stat().st_mode) == 0o600
    tokens.make()
    assert tokens.path().read_text() == made


def test_nothing_is_made_where_none_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.use(asked=False)
    tokens.make()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given by the environment")
    tokens.make()
    assert not tokens.path().exists()


def test_what_the_user_has_set_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    tokens.use()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_who_connects_gives_a_token_only_if_there_is_one(folder: Path) -> None:
    tokens.use_if_made()
    assert "RAY_AUTH_MODE" not in os.environ
    tokens.path().parent.mkdir()
    tokens.path().write_text("x")
    tokens.use_if_made()
    assert os.environ["RAY_AUTH_MODE"] == "token"
