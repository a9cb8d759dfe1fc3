"""The figures of the rounds for docs/tested.md, so that none there is typed by hand.

python -m benchmarks.fuzz.table build/fuzz/rounds.jsonl --write docs/tested.md
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.sitting import KINDS, Record, read
from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically

BEGIN = "<!-- written by `python -m benchmarks.fuzz.table FILE --write docs/tested.md` -->"
END = "<!-- end of what is written -->"


def figures(records: Sequence[Record]) -> str:
    """A sentence on all rounds, and a table with a line a kind."""
    found = sum(not record.has_passed for record in records)
    seeds, codes = sorted({record.seed for record in records}), {record.code for record in records}
    kills, trainings = sum(record.kills for record in records), sum(record.killed_trainings for record in records)
    sentence = (
        f"{len(records):,} rounds in {_counted(len(seeds), 'sitting')} (`SEED` {', '.join(map(str, seeds))}; "
        f"{_counted(len(codes), 'version')} of the code), with {kills:,} kills, {trainings:,} of them of trainings: "
        f"{_counted(found, 'finding')}."
    )
    lines = ["| kind | rounds | kills | findings | seconds a round |", "|---|---:|---:|---:|---:|"]
    for kind in KINDS:
        rounds = [record for record in records if record.kind == kind]
        if rounds:
            seconds = sum(record.seconds for record in rounds) / len(rounds)
            found = sum(not record.has_passed for record in rounds)
            kills = sum(record.kills for record in rounds)
            lines.append(f"| `{kind}` | {len(rounds):,} | {kills:,} | {found:,} | {seconds:.1f} |")
    return "\n".join([sentence, "", *lines])


def replaced(page: str, text: str) -> str:
    """The page with `text` between the marks `BEGIN` and `END`.

    Raises:
        UserError: it has not each mark once, in this order.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest:
        raise UserError(f"--write: the page has not the marks, each once on a line of its own: {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{text.strip()}\n\n{END}{tail}"


def main() -> None:
    """Print the figures, or write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+", help="files of rounds")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write them into this page, between its marks")
    options = parser.parse_args()
    text = figures([record for path in options.records for record in read(path)])
    if options.write is None:
        print(text)
    else:
        write_atomically(options.write, replaced(options.write.read_text(encoding="utf-8"), text))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    main()
