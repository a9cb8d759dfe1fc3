"""Trains what docs/results.md reports: six models until they read, then the comparisons that the documents make.

    export TOKENFREE_TEST_DATA=...      # the folder with wiki-dumps/ and books/
    nice -n 19 python -m benchmarks.learning --output learning
    python -m benchmarks.learning --output learning --only 'ms-*'          # a part; several may share a folder
    python -m benchmarks.learning --list                                    # the queue, with its commands
    python -m benchmarks.learning --output learning --table                 # the tables, in Markdown
    python -m benchmarks.learning --table docs/learning.jsonl --write docs/results.md

Makes the data directories where they are absent, then works through the queue: `tokenfree pretrain` for each run, in a
process and with a thread of its own, then `tokenfree evaluate`, then a line in OUTPUT/results.jsonl. A run whose line
is there is not done again. Ctrl-C, SIGTERM or a kill lose nothing; the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.learning.command import add_queue_arguments, exit_status, fitting, show
from benchmarks.learning.data import prepare
from benchmarks.learning.page import write
from benchmarks.learning.plan import ROWS, queue
from benchmarks.learning.results import Results
from benchmarks.learning.tables import tables
from benchmarks.learning.work import told, trained, work
from tokenfree.preprocess.common.errors import JobError, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    return exit_status("benchmarks.learning", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    output = Path(arguments.output)
    data = Path(arguments.data) if arguments.data else output / "data"
    entries = fitting(queue(ROWS), arguments.only)
    if arguments.list:
        show((entry.name, entry.command(data, output / "runs")) for entry in entries)
        return 0
    if arguments.table is not None:
        return _table(Path(arguments.table) if arguments.table else output / "results.jsonl", arguments.write)
    prepare(data, list(dict.fromkeys(entry.row.data for entry in entries)), output / "logs")
    run = partial(trained, output=output, data=data)
    failed = work(entries, Results(output / "results.jsonl"), output / "locks", run, partial(print, flush=True), told)
    if failed:
        raise JobError(f"{len(failed)} of {len(entries)} runs failed: {', '.join(failed)}; see {output}/logs")
    return 0


def _table(path: Path, page: str | None) -> int:
    lines = Results(path).lines()
    if not lines:
        raise UserError(f"{path}: no results in it yet; name a file of results, or its folder as --output")
    if page is None:
        print(tables(lines))
    else:
        write(Path(page), tables(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", metavar="DIR", default="learning", help="runs, logs and results (default: learning)"
    )
    parser.add_argument("--data", metavar="DIR", help="the folder of the data directories (default: OUTPUT/data)")
    add_queue_arguments(parser, "ms-*")
    return parser


if __name__ == "__main__":
    sys.exit(main())
