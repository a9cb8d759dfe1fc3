"""What a worker process of the embedded runner runs: Beam's own harness, without its chatter on the terminal.

    python -m tokenfree.pipelines.direct_worker PARENT

(started by the runner, the process PARENT, which sets the environment that the harness reads)
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from tokenfree.core.errors import PrintableStream
from tokenfree.core.machine import end_with_parent


def main() -> None:
    """Serve the runner until it closes the connection, or dies, be it before there is one."""
    end_with_parent(int(sys.argv[1]))
    handler = logging.StreamHandler(PrintableStream(sys.stderr))
    # The harness sets the level of the root logger, so the handler has to filter. Errors of a step reach the runner,
    # which raises them.
    handler.setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(handler)
    from apache_beam.runners.worker import sdk_worker_main  # logs while it is imported

    # It prints the traceback of each step that fails, a hundred lines for a disk that is full. What ends the process
    # itself is printed after this block.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        sdk_worker_main.main([])


if __name__ == "__main__":
    main()
