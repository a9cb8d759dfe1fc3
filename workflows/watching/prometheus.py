"""Serves the figures of a command to a Prometheus on this machine, while it works."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.watching.figures import Figures

HOST = "127.0.0.1"


@contextlib.contextmanager
def served(figures: Figures, port: int) -> Iterator[None]:
    """In the block, http://127.0.0.1:`port`/metrics has the figures in the text format of Prometheus.

    Raises:
        UserError: there is no such port, or it cannot be had.
    """
    if not 1 <= port <= 65535:
        raise UserError(f"--metrics-port {port}: give a port from 1 to 65535")
    registry = CollectorRegistry()
    registry.register(figures)
    try:
        server, thread = start_http_server(port, addr=HOST, registry=registry)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--metrics-port {port}: it is taken; give another port of this machine") from None
        raise UserError(f"--metrics-port {port}: {error.strerror}; give another port of this machine") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
