"""A profile as a user would have filled it in, and a working directory of the test's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenfree.workflows.cluster import profiles


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; no token, local cluster or address of the user's is seen from there."""
    monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token" / "auth_token"))
    for name in (
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_ADDRESS",
        "RAY_API_SERVER_ADDRESS",
        "RAY_UP_enable_autoscaler_v2",
    ):
        monkeypatch.setenv(name, "x")  # so that what the code under test sets is taken back
        monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def filled(folder: Path) -> Callable[..., str]:
    """Writes a profile that comes with tokenfree with its places filled in, and with changes; gives the file."""

    def write(name: str, change: Callable[[dict[str, Any]], Any] = lambda mapping: None) -> str:
        text = profiles.find(name).read_text(encoding="utf-8")
        mapping = yaml.safe_load(profiles._PLACE.sub("filled", text))
        change(mapping)
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
        return str(path)

    return write
