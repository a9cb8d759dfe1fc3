"""With what a run or a sweep was made, as a block of its section."""

from collections.abc import Sequence

from tokenfree.workflows.report.attempts import Attempt, attempt_rows, package_rows
from tokenfree.workflows.report.sections.parts import Block, Table

HEADER = ("begun (UTC)", "command", "commit", "machine")


def attempt_block(attempts: Sequence[Attempt], text: str = "") -> Block:
    """The commands that trained, and the versions of packages; `text` says more of the machines."""
    if not attempts:
        told = "This was made by a version of tokenfree that did not record its command, versions and machine."
        return Block("What it was made with", f"{told} {text}".strip())
    header, rows = package_rows(attempts)
    tables = [
        Table("Commands given", HEADER, attempt_rows(attempts), folded=len(attempts) > 4),
        Table("Versions of packages", header, rows, folded=True),
    ]
    return Block("What it was made with", text, tables=tables)
