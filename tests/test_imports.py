"""Imports run one way: workflows -> pipelines, train -> preprocess; and importing a package starts nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ALLOWED = {
    "preprocess": {"preprocess"},
    "pipelines": {"pipelines", "preprocess"},
    "train": {"train", "preprocess"},
    "workflows": {"workflows", "pipelines", "train", "preprocess"},
}
FOREIGN = {"preprocess": {"apache_beam", "torch", "ray"}, "pipelines": {"torch", "ray"}, "train": {"apache_beam"}}


def imported(path: Path) -> set[str]:
    """The top-level names that a file imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_run_one_way(package: str) -> None:
    files = sorted((REPOSITORY / package).rglob("*.py"))
    assert files
    for path in files:
        names = imported(path)
        against = (names & set(ALLOWED) - ALLOWED[package]) | (names & FOREIGN.get(package, set()))
        assert not against, f"{path.relative_to(REPOSITORY)} imports {against}"


def test_the_rule_catches_an_import_inside_a_function(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def f():\n    from train.loop import Loop\n    return Loop\n")
    assert imported(path) == {"train"}


def test_the_command_line_starts_without_torch_ray_and_beam() -> None:
    program = "import sys, workflows.cli; print([m for m in ('torch', 'ray', 'apache_beam') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "[]"
