"""The options by which a command is watched, and the watching itself, around its work."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenfree.workflows.watching.figures import Figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[--metrics-port PORT]`."""
    port = "serve figures for Prometheus at http://127.0.0.1:PORT/metrics meanwhile"
    parser.add_argument("--metrics-port", metavar="PORT", type=int, help=port)


@contextlib.contextmanager
def watched(args: argparse.Namespace, figures: Figures) -> Iterator[Callable[..., Callable[..., None]]]:
    """Watch a command, as its options ask for, while the block does its work.

    Yields what makes of the function that shows progress one that also tells `figures` of it.

    Raises:
        UserError: an option cannot be met; nothing has begun then.
    """
    with contextlib.ExitStack() as stack:
        if args.metrics_port is not None:
            from tokenfree.workflows.watching.prometheus import served

            stack.enter_context(served(figures, args.metrics_port))

        def hearing(show: Callable[..., None]) -> Callable[..., None]:
            def hear(*news: Any) -> None:
                figures.hear(*news)
                show(*news)

            return hear

        yield hearing
