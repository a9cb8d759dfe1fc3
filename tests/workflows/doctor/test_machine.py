"""Whether doctor finds Java, which two of Beam's engines need, and a torch that works."""

import socket
import sys
from pathlib import Path

import pytest

from tokenfree.workflows import doctor
from tokenfree.workflows.doctor import devices, java


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `bin`, which is empty, is the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize(
    ("said", "state", "value"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok", "17"),
        ('openjdk version "11.0.2" 2019-01-15', "ok", "11"),
        ('java version "1.8.0_401"', "note", "1"),
        ("no such thing", "note", "no such thing"),
    ],
)
def test_java_is_told_by_its_version(bare: Path, said: str, state: str, value: str) -> None:
    program = bare / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {int(state == 'note')}\n")
    program.chmod(0o755)
    (found,) = java()
    assert (found.state, found.what, found.value.strip()) == (state, "java", value)
    assert bool(found.remedy) == (state == "note")


def test_no_java_is_only_noted(bare: Path) -> None:
    (found,) = java()
    assert (found.state, found.value) == ("note", "not found")
    assert "install a Java 17 runtime" in found.remedy


def test_what_an_engine_lacks(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(bare))
    with socket.create_server(("localhost", 0)) as server:
        master = server.getsockname()[:2]
        monkeypatch.setattr(doctor, "ENGINES", {"flink": ("jars/*flink*.jar", master)})
        (found,) = doctor.engines()
        assert found.value == "lacks Java, a program that Beam downloads on first use"
        (bare / "bin" / "java").touch(0o755)
        (bare / ".apache_beam" / "cache" / "jars").mkdir(parents=True)
        (bare / ".apache_beam" / "cache" / "jars" / "beam-runners-flink-job-server.jar").touch()
        (found,) = doctor.engines()
        assert (found.state, found.what, found.value) == ("ok", "--runner flink", "ready")
    (found,) = doctor.engines()
    assert found.value == f"lacks a master at {master[0]}:{master[1]}"


def test_a_torch_that_cannot_be_imported_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "raise ValueError('libcublasLt.so not found\\nin 20 folders')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = list(devices())[-1]
    assert (found.state, found.what, found.value) == (
        "missing", "torch", "cannot be imported: libcublasLt.so not found"
    )  # fmt: skip


def test_an_untested_version_of_ray_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "untested", lambda: "Ray 2.61.0 was not tested")
    ray = next(doctor.ray_cluster())
    assert (ray.state, ray.what, ray.value) == ("note", "ray was tested", "2.60")
    assert ray.remedy == "Ray 2.61.0 was not tested"
