"""The options by which a command is watched, and the watching itself, around its work."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tokenfree.preprocess.common.errors import UserError

if TYPE_CHECKING:
    from tokenfree.workflows.watching.figures import Figures


def add_metrics_port(parser: argparse.ArgumentParser) -> None:
    """`[--metrics-port PORT]`."""
    port = "serve figures for Prometheus at http://127.0.0.1:PORT/metrics meanwhile"
    parser.add_argument("--metrics-port", metavar="PORT", type=int, help=port)


def add_notify(parser: argparse.ArgumentParser) -> None:
    """`[--notify COMMAND|URL] [--stalled-after MINUTES]`."""
    told = "told by JSON when this command has finished, failed, was stopped, stalls or is dead"
    parser.add_argument("--notify", metavar="COMMAND|URL", help=told)
    minutes = "without a step, after which it is stalled (default: 30, or ten usual steps)"
    parser.add_argument("--stalled-after", metavar="MINUTES", type=float, help=minutes)


@contextlib.contextmanager
def watched(args: argparse.Namespace, figures: Figures) -> Iterator[Callable[..., Callable[..., None]]]:
    """Watch a command, as its options ask for, while the block does its work.

    Yields what makes of the function that shows progress one that also tells `figures` of it.

    Raises:
        UserError: an option cannot be met; nothing has begun then.
    """
    port, to, minutes = getattr(args, "metrics_port", None), args.notify, args.stalled_after
    if minutes is not None and not (to is not None and 0 < minutes < float("inf")):
        raise UserError(f"--stalled-after {minutes:g}: give minutes above 0; it needs --notify")
    with contextlib.ExitStack() as stack:
        if to is not None:
            from tokenfree.workflows.watching import receiver

            receiver.check(to)
            sys.argv[:] = receiver.hidden(sys.argv)  # which a run and its trackers keep
        if port is not None:
            from tokenfree.workflows.watching.prometheus import served

            stack.enter_context(served(figures, port))
        sender = None
        if to is not None:
            from tokenfree.workflows.watching.notify import notifying

            seconds = None if minutes is None else minutes * 60
            sender = stack.enter_context(notifying(to, args.command, args.output, figures.facts, seconds))

        def hearing(show: Callable[..., None]) -> Callable[..., None]:
            def hear(*news: Any) -> None:
                if figures.hear(*news) and sender is not None:
                    sender.sign(figures.facts())
                show(*news)

            return hear

        yield hearing
