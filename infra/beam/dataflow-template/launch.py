"""What the launcher of a flex template runs: its parameters are ours, whatever else it gives is Beam's."""

import sys

from tokenfree.workflows.cli import main

OURS = ("wikipedia", "books", "output", "workers")


def command(arguments: list[str]) -> list[str]:
    """`tokenfree preprocess` as the parameters want it."""
    parts = [argument.removeprefix("--").partition("=") for argument in arguments]
    given = {name: value for name, _, value in parts}
    ours = [word for name in OURS if given.get(name) for word in (f"--{name}", *given.pop(name).split(","))]
    passed_on = [
        f"--{name}={value}" if value else f"--{name}" for name, value in given.items() if name not in OURS
    ]
    return ["preprocess", *ours, "--runner", "dataflow", "--", *passed_on]


if __name__ == "__main__":
    sys.exit(main(command(sys.argv[1:])))
