"""Fine-tunes what docs/task_results.md reports: the tasks that the documents judge by, three seeds a row.

    export TOKENFREE_TEST_DATA=...      # the folder with sst/, mtl-16/, masakhaner/ and the others
    nice -n 19 python -m benchmarks.tasks --runs learning/runs --output tasks
    python -m benchmarks.tasks --runs learning/runs --output tasks --only 'sst5-*'   # several may share a folder
    python -m benchmarks.tasks --list                                        # the queue, with its commands
    python -m benchmarks.tasks --table docs/task_results.jsonl --write docs/task_results.md

--runs names the runs of `python -m benchmarks.learning`, which are begun with. A run whose pretrained run is not there
is left out, and told of. Each run is `tokenfree finetune` in a process and with a thread of its own, then a line in
OUTPUT/results.jsonl. The rows `*-noise-*` put noise into the test of runs that have been fine-tuned, which they wait
for in the same way. A run whose line is there is not done again. Ctrl-C, SIGTERM or a kill lose nothing; the same
command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.learning.command import add_queue_arguments, exit_status, fitting, show
from benchmarks.learning.page import write
from benchmarks.learning.results import Results
from benchmarks.learning.work import work
from benchmarks.tasks.data import prepare
from benchmarks.tasks.plan import AnyEntry, Folders, NoiseEntry, queue
from benchmarks.tasks.rows import NOISE_ROWS, ROWS
from benchmarks.tasks.tables import tables
from benchmarks.tasks.work import done, is_finished, told
from tokenfree.preprocess.common.errors import JobError, UserError

PAGE_MARK = (
    "<!-- written by `python -m benchmarks.tasks --table docs/task_results.jsonl --write docs/task_results.md` -->"
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    return exit_status("benchmarks.tasks", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    output = Path(arguments.output)
    folders = Folders(data=output / "data", pretrained=Path(arguments.runs), runs=output / "runs")
    entries = fitting(queue(ROWS, NOISE_ROWS), arguments.only)
    if arguments.list:
        show((entry.name, entry.command(folders)) for entry in entries)
        return 0
    results = Results(output / "results.jsonl")
    if arguments.table is not None:
        return _table(Results(Path(arguments.table)) if arguments.table else results, arguments.write)
    ready = _ready(entries, folders)
    rows = [entry.row.of if isinstance(entry, NoiseEntry) else entry.row for entry in ready]
    prepare(output / "data", list(dict.fromkeys(row.data for row in rows if row.has_files)))
    run = partial(done, output=output, folders=folders, results=results)
    failed = work(ready, results, output / "locks", run, partial(print, flush=True), told)
    if failed:
        raise JobError(f"{len(failed)} of {len(ready)} runs failed: {', '.join(failed)}; see {output}/logs")
    return 0


def _ready(entries: Sequence[AnyEntry], folders: Folders) -> list[AnyEntry]:
    """Those whose run to begin with is there, or is one of them that comes before; tells of the others."""
    ready: list[AnyEntry] = []
    for entry in entries:
        begins_with = entry.begins_with(folders)
        comes_before = isinstance(entry, NoiseEntry) and entry.finetuned in ready
        if begins_with is None or comes_before or is_finished(begins_with):
            ready.append(entry)
        else:
            print(f"{entry.name}: left out; there is no finished run {begins_with}", flush=True)
    return ready


def _table(results: Results, page: str | None) -> int:
    lines = results.lines()
    if not lines:
        raise UserError(f"{results.path}: no results in it yet; name a file of results, or its folder as --output")
    if page is None:
        print(tables(lines))
    else:
        write(Path(page), tables(lines), PAGE_MARK)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", metavar="DIR", default="tasks", help="data, runs and results (default: tasks)")
    shown = "the pretrained runs (default: learning/runs)"
    parser.add_argument("--runs", metavar="DIR", default="learning/runs", help=shown)
    add_queue_arguments(parser, "sst5-*")
    return parser


if __name__ == "__main__":
    sys.exit(main())
