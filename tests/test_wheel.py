"""The wheel, installed alone and used where files have the names of tokenfree's packages, and the source archive."""

import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY, SOURCE
from tests.test_end_to_end import MODEL, TINY
from tokenfree.workflows.demo_corpus.corpus import own_pages, write_dump

TAKEN = ("train", "preprocess", "pipelines", "workflows")
SCRIPT = """
from tokenfree import load_encoder, load_windows
import tokenfree, train, preprocess, pipelines
assert "users own" in train.__doc__ and "users own" in preprocess.__doc__ and "users own" in pipelines.__doc__
assert load_encoder("run")(["text"]).characters.shape[-1] == 16
assert next(load_windows("data", stop=1))["text"]
print(tokenfree.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy: building leaves files beside the sources, which would be in the next wheel too."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(SOURCE, source / SOURCE.name)
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, cwd=folder)
    return next(folder.glob("tokenfree-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with what it depends on as this one has it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    command = ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    ours = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n")  # files named .pth in there are not followed
    return folder


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs a program of the environment in a folder with modules of the user's own; gives its standard output."""
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text(f'"""The users own {name}."""\n')

    def run(*command: str) -> str:
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        program = str(environment / "bin" / command[0])
        done = subprocess.run([program, *command[1:]], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_it_holds_files_and_no_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    kinds = ("*.py", "*.yaml", "*.jinja", "*.mplstyle", "*.wikitext")
    files = [path for folder in TAKEN for kind in kinds for path in (SOURCE / folder).rglob(kind)]
    ours = {str(path.relative_to(SOURCE)) for path in files}
    assert len(ours) > 300
    assert ours <= {name.removeprefix("tokenfree/") for name in names}
    assert {name.split("/")[0] for name in names} == {"tokenfree", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


def test_the_sdist_holds_what_make_needs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("benchmarks", "docs", "examples", "infra", "tests", "tokenfree"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in REPOSITORY.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, source)
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    program = "from setuptools import build_meta; build_meta.build_sdist('.')"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=source, capture_output=True)
    with tarfile.open(next(source.glob("*.tar.gz"))) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "requirements.lock", "tests/test_wheel.py"} < wanted
    assert wanted - found == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_works_beside_modules_of_the_same_names(run: Callable[..., str], environment: Path, tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki-test-pages-articles.xml.bz2", own_pages())
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(MODEL))
    sweep = {"base": "small.yaml", "space": {"model.downsampler.rate": {"choice": [2, 4]}}, "trials": 2,
             "budget": {"steps": 4}, "reports": 2}  # fmt: skip
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    assert "tokenfree" in run("tokenfree", "--version")
    dump = "enwiki-test-pages-articles.xml.bz2"
    run("tokenfree", "preprocess", "--wikipedia", dump, "--output", "data", "--workers", "2", *TINY)
    run("tokenfree", "pretrain", "small.yaml", "--data", "data", "--output", "run", "--workers", "2")
    shown = run("python", "-m", "tokenfree", "sweep", "sweep.yaml", "--data", "data", "--output", "sweep")
    assert "failed" not in shown
    assert (tmp_path / "sweep" / "best.yaml").is_file()
    assert run("python", "-c", SCRIPT).strip().startswith(str(environment))
