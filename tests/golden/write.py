"""Write the golden values again: `python -m tests.golden.write [data] [recipes] [commands]`, by default all.

Real dumps are looked for in TOKENFREE_TEST_DATA; where there are none, their values stay as they are.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.golden import commands, observe


def data(folder: Path) -> dict[str, Any]:
    """Return the hashes of what preprocessing makes, with one worker."""
    with observe.inputs(folder) as arguments:
        small = {name: observe.directory(given, f"out {name}", 1) for name, given in arguments.items()}
    test_data = Path(os.environ.get("TOKENFREE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    real = observe.load("data")["real"] if (observe.FOLDER / "data.json").exists() else {}
    if test_data.is_dir():
        inputs = observe.real_inputs(test_data)
        real = {name: observe.directory(given, str(folder / name), 2) for name, given in inputs.items()}
    return {"small": small, "real": real}


def recipes(folder: Path) -> dict[str, Any]:
    """Return the losses and checkpoints of all tiny recipes."""
    directory = observe.training_data(folder)
    made = {name: observe.trained(name, directory, str(folder / name)) for name in observe.tiny_recipes()}
    return {"machine": observe.machine(), "recipes": made}


def commands_(folder: Path) -> dict[str, Any]:
    """Return statuses, problems and the shapes of JSON of all commands."""
    commands.prepare(folder)
    with contextlib.chdir(folder):
        found = {line: commands.observed(line) for line in [*commands.good(), *commands.bad()]}
    return {
        line: {key: value for key, value in each.items() if key != "error"} for line, each in found.items()
    }


WRITERS = {"data": data, "recipes": recipes, "commands": commands_}

if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            values = WRITERS[name](Path(folder))
        (observe.FOLDER / f"{name}.json").write_text(observe.shown(values), encoding="utf-8")
