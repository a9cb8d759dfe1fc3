"""The programs in examples/ run, and each notebook holds the cells of its program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def cells(program: str) -> list[str]:
    """Return the text of a program as the cells of a notebook: its docstring, and what follows each `# %%`."""
    docstring, *code = program.split("\n# %%\n")
    return [docstring.strip().strip('"'), *(cell.strip("\n") for cell in code)]


def notebook(program: str) -> str:
    """Return the notebook of a program."""
    title, *code = cells(program)
    made = [{"cell_type": "markdown", "metadata": {}, "source": title}]
    made += [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": x}
        for x in code
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(made)]
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_holds_the_cells_of_its_program(name: str) -> None:
    program = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    written = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
    assert written == notebook(program), "write it again: python -m tests.test_examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_cells_of_a_notebook_run_without_other_files(name: str, tmp_path: Path) -> None:
    found = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = tmp_path / f"{name}.py"
    code.write_text(
        "\n\n".join(cell["source"] for cell in found if cell["cell_type"] == "code"), encoding="utf-8"
    )
    variables = {name: value for name, value in os.environ.items() if name != "TOKENFREE_TEST_DATA"}
    environment = {**variables, "STEPS": "4", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout


if __name__ == "__main__":
    for each in NAMES:
        text = notebook((EXAMPLES / f"{each}.py").read_text(encoding="utf-8"))
        (EXAMPLES / f"{each}.ipynb").write_text(text, encoding="utf-8")
