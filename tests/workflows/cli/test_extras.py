"""Commands where only some extras are installed: the packages of the others cannot be imported."""

import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY, SOURCE
from tests.test_imports import imported
from tokenfree.workflows.cli import _EXTRAS, main

PROGRAM = """
import importlib.util, sys
found, hidden = importlib.util.find_spec, sys.argv[1].split(",")
importlib.util.find_spec = lambda name, *rest: None if name in hidden else found(name, *rest)
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from tokenfree.workflows.cli import main
sys.exit(main(sys.argv[2:]))
"""
DISTRIBUTIONS = {
    "apache_beam": "apache-beam",
    "lingua": "lingua-language-detector",
    "sklearn": "scikit-learn",
}


def run(hidden: set[str], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the packages of these extras."""
    packages = ",".join(name for name, extra in _EXTRAS.items() if extra in hidden)
    command = [sys.executable, "-c", PROGRAM, packages, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_each_package_is_in_its_extra() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for package, extra in _EXTRAS.items():
        listed = {Requirement(line).name for line in project["optional-dependencies"][extra]}
        assert DISTRIBUTIONS.get(package, package) in listed
        assert DISTRIBUTIONS.get(package, package) not in {
            Requirement(line).name for line in project["dependencies"]
        }


IMPORTED_BY_OTHERS = {"gcsfs", "s3fs"} | {"onnx", "onnxscript"}  # by fsspec, and by torch.onnx


def test_declared_packages_are_the_imported_ones() -> None:
    names = {
        module.partition(".")[0] for path in SOURCE.rglob("*.py") for module, _ in imported(path)
    } - sys.stdlib_module_names - {"tokenfree"}  # fmt: skip
    distributions = importlib.metadata.packages_distributions()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {canonicalize_name(Requirement(line).name) for line in lines} - {"tokenfree"}
    assert {canonicalize_name(distributions[name][0]) for name in names} == declared - IMPORTED_BY_OTHERS


@pytest.fixture
def books(tmp_path: Path) -> tuple[str, ...]:
    """A command without its output."""
    (tmp_path / "books").mkdir()
    for number in range(3):
        text = f"Book {number} tells of rain. " + "It rains on the hills and in the valleys. " * 20
        (tmp_path / "books" / f"{number}.txt").write_text(text)
    return (
        "preprocess",
        "--books",
        "books",
        "--vocabulary.size",
        "400",
        "--validation_fraction",
        "0.3",
        "--output",
    )


def test_preprocessing_needs_no_extra(books: tuple[str, ...], tmp_path: Path) -> None:
    hidden = {"beam", "model", "train", "huggingface"}
    done = run(hidden, *books, "data", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    verified = run(hidden, "verify", "data", folder=tmp_path)
    assert f"\n  next        pip install '{REPOSITORY}[train]' && tokenfree pretrain " in verified.stdout
    shown = run(hidden, "inspect", "data", folder=tmp_path)
    assert (shown.returncode, "\nsubwords " in shown.stdout, "\nmasks " in shown.stdout) == (0, True, False)
    missing = run(hidden, *books, "other", "--runner", "prism", folder=tmp_path)
    assert (missing.returncode, missing.stderr) == (
        2,
        f"tokenfree: apache_beam is not installed; run pip install '{REPOSITORY}[beam]'\n",
    )


def test_several_processes_and_ray_need_no_beam(books: tuple[str, ...], tmp_path: Path) -> None:
    done = run({"beam", "model", "train", "huggingface"}, *books, "data", "--workers", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    named = run({"beam"}, *books, "other", "--runner", "ray", folder=tmp_path)
    assert (named.returncode, "no Ray cluster is named" in named.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("pretrain", "canine-s-tiny", "--data", "d", "--output", "r"), "train"),
        (("predict", "r", "x"), "model"),
        (("cluster", "jobs"), "train"),
        (("preprocess", "--hf-dataset", "d", "--output", "o"), "datasets"),
        (("demo", "--output", "d"), "all"),
    ],
)
def test_a_missing_extra_is_named(command: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    done = run({"beam", "datasets", "model", "train"}, *command, folder=tmp_path)
    assert done.returncode == 2
    assert f"is not installed; run pip install '{REPOSITORY}[{extra}]'" in done.stderr


def test_doctor_offers_no_demo_without_its_extras(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    main(["doctor"])
    assert f"  next        pip install '{REPOSITORY}[all]'" in capsys.readouterr().out


def test_a_model_is_loaded_without_ray_and_beam(tmp_path: Path) -> None:
    for name in ("run", "data"):
        shutil.copytree(REPOSITORY / "tests" / "golden" / "kept" / name, tmp_path / name)
    hidden = {"beam", "train", "huggingface"}
    done = run(hidden, "predict", "run", "The [MASK] of", "--data", "data", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (("inspect", "s3://b/data"), "s3fs", "s3"),
        (("preprocess", "--books", "s3://b/x", "--output", "d"), "s3fs", "s3"),
        (("preprocess", "--books", "gs://b/x", "--output", "d"), "gcsfs", "gcs"),
    ],
)
def test_a_store_without_its_package_names_the_extra(
    command: tuple[str, ...],
    package: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for protocol in ("s3", "gs"):
        monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, protocol, raising=False)
    assert main([*command]) == 2
    assert "://b/" in (line := capsys.readouterr().err)
    assert line.endswith(f": pip install '{REPOSITORY}[{extra}]'\n")
