"""Parts that lie in a folder of a test."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

AddPart = Callable[[str, str, str], None]


@pytest.fixture
def add_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddPart]:
    """Put the text of a part into a slot, as if its file lay there: `add_part(package, name, text)`."""
    added = []

    def add(package: str, name: str, text: str) -> None:
        module = importlib.import_module(package)
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
        importlib.invalidate_caches()
        added.append((module, name))

    yield add
    for module, name in added:
        if sys.modules.pop(f"{module.__name__}.{name}", None) is not None:
            delattr(module, name)
