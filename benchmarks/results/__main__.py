"""Run the experiments of docs/results.md, resumable, and write their tables.

    export TOKENFREE_TEST_DATA=...                          # folder with wiki-dumps/, books/, sst/, masakhaner/, ...
    python -m benchmarks.results run                        # the whole queue, at the lowest priority, in one thread
    python -m benchmarks.results run --lane 1/2             # one of two commands that share the queue
    python -m benchmarks.results run --only 'swa-*'         # only runs whose names match
    python -m benchmarks.results list                       # what is done, and what remains
    python -m benchmarks.results tables                     # write docs/results.md, its picture and README.md here
    python -m benchmarks.results check                      # exit with 1 if these, or README.md at the top, differ

Results are lines of benchmarks/results/lines.jsonl; those of runs outside the queue are in earlier.jsonl. Data, runs
and logs are in build/results. A run that has a line is skipped, so you can kill the command at any time and run it
again. docs/results.md is written from the template page.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results.check import check
from benchmarks.results.queue import Folders, NotReady, in_lane, read_lines, runs, shown, work
from benchmarks.results.tables import write

REPOSITORY = Path(__file__).parents[2]
LINES, EARLIER = (Path(__file__).with_name(name) for name in ("lines.jsonl", "earlier.jsonl"))
VARIABLE = "TOKENFREE_TEST_DATA"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Return its exit status: 1 if a run failed, 2 for invalid arguments, 130 if interrupted.
    """
    arguments = _parser().parse_args(argv)
    if arguments.command == "tables":
        write(REPOSITORY, read_lines(arguments.lines), read_lines(EARLIER))
        return 0
    if arguments.command == "check":
        problems = check(REPOSITORY, read_lines(arguments.lines), read_lines(EARLIER))
        for problem in problems:
            print(problem, file=sys.stderr)
        return 1 if problems else 0
    if arguments.command == "list":
        return _list(arguments)
    inputs = os.environ.get(VARIABLE, "")
    if not (Path(inputs) / "masakhaner").is_dir():
        print(
            f"{VARIABLE} names no folder with masakhaner/: {inputs or 'unset'}. Set it to the data.",
            file=sys.stderr,
        )
        return 2
    os.nice(19)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by default in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folders = Folders(Path(inputs), arguments.work, arguments.lines)
    try:
        failed = work(in_lane(runs(), *arguments.lane), folders, arguments.only)
    except KeyboardInterrupt:
        print("Interrupted. Run the same command again to resume.", file=sys.stderr)
        return 130
    if failed:
        print(f"{len(failed)} runs failed: {', '.join(failed)}. See {arguments.work}/logs.", file=sys.stderr)
    return 1 if failed else 0


def _list(arguments: argparse.Namespace) -> int:
    lines = read_lines(arguments.lines)
    for run in runs():
        try:
            name = run.name(lines)
        except NotReady as reason:
            name, state = f"{run.row.name}-{run.seed}", f"rate not known: {reason}"
        else:
            state = shown(lines[name]) if name in lines else "to do"
        if fnmatch.fnmatchcase(name, arguments.only):
            print(f"{name:28}{state}")
    return 0


def _lane(text: str) -> tuple[int, int]:
    found = re.fullmatch("([0-9]+)/([0-9]+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text} is not a lane. Give N/M, such as 1/2.")
    return int(found[1]), int(found[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("run", "list", "tables", "check"))
    parser.add_argument(
        "--only", metavar="GLOB", default="*", help="only runs whose names match, such as 'swa-*'"
    )
    parser.add_argument("--lane", metavar="N/M", type=_lane, default=(1, 1), help="begin with every Mth run")
    parser.add_argument("--work", metavar="DIR", type=Path, default=REPOSITORY / "build" / "results")
    parser.add_argument(
        "--lines", metavar="FILE", type=Path, default=LINES, help="results (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
