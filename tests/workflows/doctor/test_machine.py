"""What doctor says of Beam's engines: which are here, and how to get the others."""

import importlib.metadata
from pathlib import Path

import pytest

from tokenfree.workflows.doctor.machine import Finding, engines, java

WHAT = ("flink job server", "spark job server", "prism")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a cache and a PATH with nothing in them."""
    for name in ("home", "cache", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKENFREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_what_is_not_here_is_noted_with_how_to_get_it(bare: Path) -> None:
    found = list(engines())
    assert [(one.state, one.what, one.value) for one in found] == [("note", what, "not here") for what in WHAT]
    for name, one in zip(("flink", "spark"), found, strict=False):
        assert one.remedy.startswith(f"only for --runner {name}: Beam downloads it from Maven Central")
        assert f"-- --{name}_job_server_jar=FILE" in one.remedy
    version = importlib.metadata.version("apache-beam")
    assert found[2].remedy.endswith(f"go install github.com/apache/beam/sdks/v2/go/cmd/prism@v{version}")


def test_without_beam_there_are_no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert list(engines()) == []


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("flink job server", "home/.apache_beam/cache/jars/beam-runners-flink-1.19-job-server-2.70.0.jar"),
        ("flink job server", "cache/engines/flink-job-server.jar"),
        ("spark job server", "home/.apache_beam/cache/jars/beam-runners-spark-3-job-server-2.70.0.jar"),
        ("spark job server", "cache/engines/spark-job-server.jar"),
        ("prism", "home/.apache_beam/cache/prism/bin/apache_beam-v2.77.0-prism-linux-amd64"),
        ("prism", "cache/engines/prism"),
        ("prism", "bin/prism"),
    ],
)
def test_each_place_is_looked_at(bare: Path, what: str, path: str) -> None:
    file = put(bare / path)
    found = {one.what: one for one in engines()}
    assert found.pop(what) == Finding("ok", what, str(file))
    assert {one.state for one in found.values()} == {"note"}


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
    put(bare / "bin" / "java", f"#!/bin/sh\necho '{said}' >&2\nexit {int(state == 'note')}\n")
    (found,) = java()
    assert (found.state, found.what, found.value.strip()) == (state, "java", value)
    assert bool(found.remedy) == (state == "note")


def test_no_java_is_only_noted(bare: Path) -> None:
    (found,) = java()
    assert (found.state, found.value) == ("note", "not found")
    assert "install a Java 17 runtime" in found.remedy
