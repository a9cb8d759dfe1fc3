"""What the commands of the queues share: exit statuses, and which runs a pattern names."""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import sys
from collections.abc import Callable, Iterable

from benchmarks.learning.work import Each
from tokenfree.preprocess.common.errors import JobError, UserError

INTERRUPTED = 128 + signal.SIGINT


def exit_status(program: str, run: Callable[[], int]) -> int:
    """What `run` returns; 1 where a run failed, 2 for a mistake of the user, 130 interrupted: each with a line that
    says so. SIGTERM interrupts as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # in the background too, where Ctrl-C is ignored
    try:
        return run()
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # python -m benchmarks.learning --list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted; the same command again goes on", file=sys.stderr)
        return INTERRUPTED


def fitting(entries: Iterable[Each], pattern: str) -> list[Each]:
    """The runs of a queue whose name fits a pattern such as `canine-*` or `*-0`.

    Raises:
        UserError: none does.
    """
    found = [entry for entry in entries if fnmatch.fnmatchcase(entry.name, pattern)]
    if not found:
        raise UserError(f"--only {pattern}: no run of that name; --list names them all")
    return found


def show(commands: Iterable[tuple[str, str]]) -> None:
    """Print the name of each run with its command; the commands stand below each other."""
    listed = list(commands)
    width = max(len(name) for name, _ in listed) + 2
    for name, command in listed:
        print(f"{name:<{width}}{command}")


def add_queue_arguments(parser: argparse.ArgumentParser, example: str) -> None:
    """What a queue is told besides its folders; `example` is a pattern of names in it."""
    shown = f"only runs whose names fit, such as '{example}'"
    parser.add_argument("--only", metavar="PATTERN", default="*", help=shown)
    parser.add_argument("--list", action="store_true", help="only show the queue")
    parser.add_argument("--table", metavar="FILE", nargs="?", const="", help="only print the tables")
    parser.add_argument("--write", metavar="PAGE", help="with --table: write them into a page, between its marks")
