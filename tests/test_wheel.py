"""The wheel, installed alone and used where files have the names of tokenfree's packages, and the source archive."""

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY, SOURCE
from tests.preprocess.conftest import dump_server  # noqa: F401, a fixture
from tests.test_end_to_end import MODEL, TINY
from tokenfree.workflows.demo_corpus.corpus import bundled_pages, write_dump

TAKEN = ("train", "preprocess", "pipelines", "workflows")
SCRIPT = """
from tokenfree import load_encoder, load_windows
import tokenfree, train, preprocess, pipelines
assert "users own" in train.__doc__ and "users own" in preprocess.__doc__ and "users own" in pipelines.__doc__
assert load_encoder("run")(["text"]).characters.shape[-1] == 16
assert next(load_windows("data", stop=1))["text"]
print(tokenfree.__file__)
"""


# Commands of docs/install.md by the extra that it lists them for. The folder has what `work` puts there.
TRAIN = "--train.steps 2 --train.global_batch 4"
BOOKS = "preprocess --books books --vocabulary.size 400 --window.max_characters 56"
COMMANDS = {
    "none": [
        f"{BOOKS} --output made --workers 2",
        "verify data",
        "inspect data",
        "replay data",
        "download sw --output dumps --allow-http --dry-run",
        "doctor",
        "completion bash",
    ],
    "beam": [f"{BOOKS} --output made --profile beam.yaml"],
    "datasets": [
        "preprocess --hf-dataset data --filters.min_characters 1 --vocabulary.size 400 --output made"
    ],
    "language-id": [f"{BOOKS} --output made --filters.also '[{{name: language, min_confidence: 0}}]'"],
    "model": [
        "predict run 'The [MASK] of'",
        "predict labels 'A good film.'",
        "predict tags 'Anna sees Rome.'",
        "embed run texts.tsv --output made",
        "model canine-s-tiny",
        "plan canine-s-base --gpus 8",
    ],
    "train": [
        f"pretrain canine-s-tiny --data data --output made {TRAIN} --workers 2",
        f"finetune classification --train texts.tsv --dev texts.tsv --output made-labels {TRAIN}",
        "sweep sweep.yaml --data data --output made-sweep",
        "evaluate run --data data",
        "evaluate labels --data texts.tsv",
        "analyze collisions run",
        "report data run labels tags made-sweep --output report.html",
        "cluster profiles",
    ],
    "huggingface": ["export run --to huggingface exported", "import exported --output imported"],
    "onnx": ["export tags --to onnx graph"],
    "s3": [f"{BOOKS} --output BUCKET/made", "verify BUCKET/made"],
    "tracking": [f"pretrain canine-s-tiny --data data --output made {TRAIN} --train.log_to [mlflow,wandb]"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy: building leaves files beside the sources, which would be in the next wheel too."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(SOURCE, source / SOURCE.name)
    command = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, cwd=folder)
    return next(folder.glob("tokenfree-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with what it depends on as this one has it."""
    folder = tmp_path_factory.mktemp("environment")
    ours = [path for path in site.getsitepackages() if Path(path).is_dir()]
    packages = install(wheel, folder)
    # Files named .pth in there are not followed.
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n")
    return folder


def install(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with the wheel alone, and return the folder of its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    command = ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    return next(folder.glob("lib/python*/site-packages"))


def add_needed(
    packages: Path, lines: Sequence[str], extras: Collection[str], added: set[tuple[str, str]]
) -> None:
    """Link the packages that requirements name, and what they need in turn, from this environment into another one."""
    for requirement in map(Requirement, lines):
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        ):
            continue
        new = {(requirement.name, extra) for extra in ("", *requirement.extras)} - added
        added |= new
        (ours,) = distributions(name="tokenfree", path=[str(packages)])
        package = ours if requirement.name == "tokenfree" else distribution(requirement.name)
        if (requirement.name, "") in new and package is not ours:
            for path in package.files or []:
                target = packages / path
                if ".." not in path.parts and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    try:
                        os.link(path.locate(), target)
                    except OSError:  # the environments are on two file systems
                        shutil.copy(path.locate(), target)
        if new:
            add_needed(packages, package.requires or [], requirement.extras, added)


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs a program of the environment in a folder with modules of the user's own; gives its standard output."""
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text(f'"""The users own {name}."""\n')

    def run(*command: str) -> str:
        variables = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        program = str(environment / "bin" / command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
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
    assert {name.split("/")[0] for name in names} == {
        "tokenfree",
        f"{wheel.name.rsplit('-', 3)[0]}.dist-info",
    }


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
def test_it_works_beside_modules_of_the_same_names(
    run: Callable[..., str], environment: Path, tmp_path: Path
) -> None:
    write_dump(tmp_path / "enwiki-test-pages-articles.xml.bz2", bundled_pages())
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


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of `COMMANDS`, made by commands of this environment."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "books").mkdir()
    for number in range(6):
        text = f"Book {number} tells of rain. " + "It rains on the hills and in the valleys. " * 20
        (folder / "books" / f"{number}.txt").write_text(text)
    (folder / "texts.tsv").write_text("text\tlabel\nA good film.\tgood\nA bad film.\tbad\n")
    (folder / "names.conll").write_text("Anna\tB-PER\nsees\tO\nRome\tB-LOC\n\nIt\tO\nrains\tO\n")
    (folder / "beam.yaml").write_text("runner: FnApiRunner\n")
    sweep = {"base": "canine-s-tiny", "space": {"model.downsampler.rate": {"choice": [2, 4]}}, "trials": 2,
             "budget": {"steps": 2}, "reports": 1}  # fmt: skip
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    start = "--init-from run --train"
    for command in (
        f"{BOOKS} --validation_fraction 0.3 --output data",
        f"pretrain canine-s-tiny --data data --output run {TRAIN}",
        f"finetune classification {start} texts.tsv --dev texts.tsv --output labels --train.steps 1",
        f"finetune ner {start} names.conll --dev names.conll --output tags --train.steps 1",
    ):
        program = [sys.executable, "-m", "tokenfree", *shlex.split(command)]
        subprocess.run(program, cwd=folder, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_is_enough_for_its_commands(
    extra: str,
    wheel: Path,
    work: Path,
    tmp_path: Path,
    bucket: str,
    dump_server: Any,  # noqa: F811
) -> None:
    packages = install(wheel, tmp_path / "environment")
    add_needed(packages, [f"tokenfree[{extra}]" if extra != "none" else "tokenfree"], [], set())
    folder = shutil.copytree(work, tmp_path / "work")
    dump_server.publish("swwiki", "20260301", {"pages-articles.xml.bz2": b"a dump"})
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    variables |= {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_MODE": "offline"}
    variables |= {"TOKENFREE_MIRROR": dump_server.url}
    for command in COMMANDS[extra]:
        program = [
            str(tmp_path / "environment" / "bin" / "tokenfree"),
            *shlex.split(command.replace("BUCKET", bucket)),
        ]
        done = subprocess.run(program, cwd=folder, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr[-3000:]}"


def test_the_install_page_lists_the_commands_that_are_tested() -> None:
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (none|`[^|]+`) \| (.+?) \|", page, re.MULTILINE)
    listed = {extra: set(re.findall(r"`(\w+)", commands)) for names, commands in rows
              for extra in re.findall(r"[\w-]+", names)}  # fmt: skip
    assert {extra: listed[extra] for extra in COMMANDS} == {
        extra: {command.split()[0] for command in commands} for extra, commands in COMMANDS.items()
    }
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert listed.keys() - {"none"} == project["optional-dependencies"].keys()


def test_install_command_works_in_this_installation(run: Callable[..., str]) -> None:
    program = "from tokenfree.core.machine import install_command; print(install_command('train'))"
    assert run("python", "-c", program) == "pip install 'tokenfree[train]'\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert done.stdout == f"pip install '{REPOSITORY}[train]'\n"
