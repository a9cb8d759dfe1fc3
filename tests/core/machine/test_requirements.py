"""The packages that tokenfree declares, with and without extras."""

import importlib.metadata

import pytest

from tokenfree.core import machine


def test_required_packages_leaves_out_those_of_other_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy>=2.1",
        'apache-beam<3,>=2.77; extra == "beam"',
        'lingua-language-detector>=2.1; extra == "language-id"',
        'tokenfree[model]; extra == "train"',
        "torch>=2.12; extra == 'model'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: lines)
    assert machine.required_packages() == ["apache-beam", "numpy", "torch"]
