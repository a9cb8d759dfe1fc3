"""The house holds: who may import whom, no circle of files or folders, and importing a package starts nothing heavy."""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, SOURCE

# What lies in a folder, from the ground up: a floor may import what is on the floors below it, never its own
# or above. Files count as folders of their own. Folders without an entry have no order, only no circle.
FLOORS: dict[str, list[set[str]]] = {
    "": [{"core"}, {"preprocess"}, {"pipelines", "train"}, {"workflows"}],
    "preprocess": [
        {"records", "text"},
        {"config", "wikitext"},
        {"features", "sources"},
        {"dataset", "documents", "download"},
        {"shards"},
        {"job"},
    ],
    "train": [
        {"intervals", "model", "optimizers", "torch_state"},
        {"batches", "config"},
        {"checks", "data", "objectives"},
        {"runs", "tasks"},
        {"loop"},
        {"planning", "ray"},
        {"inference"},
        {"huggingface"},
        {"analyses", "jobs"},
        {"evaluate", "finetune", "pretrain"},
        {"sweep"},
    ],
    "train/model": [
        {"common"},
        {"attention", "embedders", "layers", "neighbours", "positions", "segments"},
        {"downsamplers"},
        {"upsamplers"},
        {"encoder"},
        {"costs"},
    ],
    "train/sweep": [
        {"recipe"},
        {"history", "subjects"},
        {"results", "search", "trial"},
        {"run", "tune"},
    ],
    "workflows": [
        {"demo_corpus", "recipes"},
        {"terminal"},
        {"api", "doctor", "report"},
        {"cluster"},
        {"commands"},
        {"work"},
        {"cli"},
    ],
}
FOREIGN = {
    "core": {"apache_beam", "torch", "ray"},
    "preprocess": {"apache_beam", "torch", "ray"},
    "pipelines": {"torch", "ray"},
    "train": {"apache_beam"},
}
# of FOREIGN: imported where a job is to run on Ray alone, or connects to a cluster
EXCEPT = {Path("pipelines/ray.py"): {"ray"}, Path("core/ray_access.py"): {"ray"}}
PACKAGES = ("core", "preprocess", "pipelines", "train", "workflows")


def files() -> list[Path]:
    """All files of the packages, from `tokenfree/`."""
    found = [path.relative_to(SOURCE) for package in PACKAGES for path in (SOURCE / package).rglob("*.py")]
    assert len(found) > 200
    return sorted(found)


@functools.cache
def imported(path: Path) -> list[tuple[str, str]]:
    """(module, name) of all that a file imports, also inside functions and for type checkers; name may be empty."""
    names: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += ((node.module or "", alias.name) for alias in node.names)
    return names


def file_of(module: str, name: str) -> Path | None:
    """The file that an import of ours brings in, from `tokenfree/`."""
    parts = Path(*module.split(".")[1:])
    for candidate in (
        parts / f"{name}.py",
        parts / name / "__init__.py",
        parts.with_suffix(".py"),
        parts / "__init__.py",
    ):
        if (SOURCE / candidate).is_file():
            return candidate
    return None


def imports_of_ours(paths: Iterable[Path]) -> dict[Path, set[Path]]:
    """Which of our files each file imports."""
    graph: dict[Path, set[Path]] = {}
    for path in paths:
        graph[path] = set()
        for module, name in imported(SOURCE / path):
            if module.split(".")[0] == "tokenfree" and module != "tokenfree":
                target = file_of(module, name)
                assert target is not None, f"{path} imports {module} {name}, which is nowhere"
                graph[path] |= {target} - {path}
    return graph


def rooms(path: Path, folder: str) -> str | None:
    """The part of `folder` in which a file lies: the name of a folder or, without ending, of a file; None outside."""
    parts = path.parts
    depth = len(Path(folder).parts)
    if parts[:depth] != Path(folder).parts:
        return None
    return parts[depth].removesuffix(".py")


def runs_up(graph: Mapping[Path, set[Path]]) -> list[str]:
    """The imports that the floors do not allow."""
    found = []
    for folder, floors in FLOORS.items():
        floor = {room: number for number, names in enumerate(floors) for room in names}
        for path, targets in graph.items():
            here = rooms(path, folder)
            if here is None or here == "__init__":
                continue
            for target in targets:
                there = rooms(target, folder)
                if there is None or there in (here, "__init__"):
                    continue
                if floor[here] <= floor[there]:
                    found.append(f"{path} imports {target}")
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str] | None:
    """A circle of a graph, None where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.fixture(scope="module")
def graph() -> dict[Path, set[Path]]:
    return imports_of_ours(files())


def test_imports_run_down_the_floors(graph: dict[Path, set[Path]]) -> None:
    assert runs_up(graph) == []


def test_the_floors_name_all_that_is_there_and_no_more() -> None:
    for folder, floors in FLOORS.items():
        there = {rooms(path, folder) for path in files()} - {None, "__init__"}
        assert there == set().union(*floors), folder
        assert sum(map(len, floors)) == len(there), folder


def test_no_circle_of_files(graph: dict[Path, set[Path]]) -> None:
    assert circle({str(path): {str(target) for target in targets} for path, targets in graph.items()}) is None


def test_no_circle_of_folders(graph: dict[Path, set[Path]]) -> None:
    for folder in sorted({str(parent) for path in graph for parent in path.parents}):
        inside = "" if folder == "." else folder
        among: dict[str, set[str]] = {}
        for path, targets in graph.items():
            here = rooms(path, inside)
            if here is not None and here != "__init__":
                beside = {rooms(target, inside) for target in targets} - {None, here, "__init__"}
                among.setdefault(here, set()).update(room for room in beside if room)
        assert circle(among) is None, folder


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_of_a_package_have_one_name(package: str) -> None:
    """Except `Config`, which every part has by contract."""
    homes: dict[str, list[str]] = {}
    for path in files():
        if path.parts[0] == package:
            for node in ast.parse((SOURCE / path).read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(str(path))
    assert homes
    assert {name: paths for name, paths in homes.items() if len(paths) > 1 and name != "Config"} == {}


@pytest.mark.parametrize("package", FOREIGN)
def test_foreign_packages_stay_where_they_belong(package: str) -> None:
    for path in files():
        if path.parts[0] == package:
            names = {module.split(".")[0] for module, _ in imported(SOURCE / path)}
            assert not names & (FOREIGN[package] - EXCEPT.get(path, set())), path


def test_tests_benchmarks_and_tools_stay_apart() -> None:
    """What they share lies in tools/. Only tests/benchmarks, which tests benchmarks/, imports from there."""
    beside = {"benchmarks", "docs", "tests"}
    for folder in (*beside, "tools", "tokenfree"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            allowed = {folder, *path.relative_to(REPOSITORY).parts[:2]} if folder == "tests" else {folder}
            names = {module.split(".")[0] for module, _ in imported(path)}
            assert not names & (beside - allowed), path


def test_the_rules_catch_what_they_are_for(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def f():\n    from tokenfree.train.loop.pretraining import Loop\n    return Loop\n")
    assert imported(path) == [("tokenfree.train.loop.pretraining", "Loop")]
    up = {Path("train/model/common/basic.py"): {Path("train/model/costs.py")}}
    assert runs_up(up) == ["train/model/common/basic.py imports train/model/costs.py"]
    side = {Path("train/loop/pretraining.py"): {Path("train/inference/words.py")}}
    assert runs_up(side) == ["train/loop/pretraining.py imports train/inference/words.py"]
    assert circle({"a": {"b"}, "b": {"a"}}) is not None


def test_no_package_imports_its_own_files_so_that_any_file_can_be_imported_first() -> None:
    """There is no circle of files either, so that each finds what it imports, whichever comes first."""
    for path in files():
        if path.name == "__init__.py":
            assert not [module for module, _ in imported(SOURCE / path) if module.startswith("tokenfree")], (
                path
            )


@pytest.mark.slow
def test_all_modules_can_be_imported() -> None:
    names = [
        ".".join(("tokenfree", *path.with_suffix("").parts))
        for path in reversed(files())
        if path.stem != "__init__"
    ]
    program = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)


# One process imports them in this order, so that no module may import what is absent from a later one.
LIGHT: list[tuple[str, set[str]]] = [
    ("tokenfree", {"torch", "ray", "apache_beam", "pyarrow", "numpy"}),
    ("tokenfree.workflows.cli", {"torch", "ray", "apache_beam", "pyarrow", "numpy", "rich", "pydantic"}),
    *(
        (f"tokenfree.workflows.commands.{name}", {"pyarrow", "numpy", "rich", "pydantic", "fsspec"})
        for name in ("cluster", "doctor", "download", "preprocess", "pretrain", "sweep")
    ),
    # Which most commands print with.
    ("tokenfree.workflows.terminal.results", {"torch", "ray", "pyarrow"}),
    ("tokenfree.pipelines.preprocess", {"torch", "ray", "apache_beam", "pandas"}),
    ("tokenfree.train.data.loader", {"torch", "ray"}),
    ("tokenfree.train.loop.worker", {"ray", "torch.distributed.fsdp", "torch._dynamo", "scipy", "pandas"}),
    # Trackers are imported where they are asked for.
    ("tokenfree.train.pretrain", {"wandb", "mlflow"}),
    # The extra `model`.
    ("tokenfree.train.inference.finetuned", {"scipy", "sklearn", "ray", "apache_beam"}),
    # Each trial is a process that imports it.
    ("tokenfree.train.sweep.tune", {"scipy", "sklearn", "optuna"}),
]


@pytest.fixture(scope="module")
def heavy() -> dict[str, list[str]]:
    """Return the heavy modules that are there after the import of each light one."""
    program = f"""
import importlib, json, sys
heavy = dict()
for module, absent in {LIGHT!r}:
    importlib.import_module(module)
    heavy[module] = sorted(absent & sys.modules.keys())
print(json.dumps(heavy))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", [module for module, _ in LIGHT])
def test_what_starts_often_imports_nothing_heavy(module: str, heavy: dict[str, list[str]]) -> None:
    assert heavy[module] == []


def test_asserts_call_nothing_that_python_would_leave_out() -> None:
    """`python -O` removes them."""
    calls = [
        f"{path}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
        for call in ast.walk(node.test)
        if isinstance(call, (ast.Call, ast.NamedExpr)) and ast.unparse(call).partition("(")[0] != "isinstance"
    ]
    assert calls == []


@pytest.mark.parametrize("name", ["preprocess", "pipelines", "train", "workflows"])
def test_links_at_the_top_level_refuse_imports(name: str) -> None:
    program = [sys.executable, "-c", f"import {name}"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: `{name}` is a link for readers into tokenfree/. Import tokenfree.{name} instead."
    )
