"""An S3 server that loses requests: `python -m benchmarks.fuzz.store FILE` writes its port into FILE and serves.

PUT /-/faults takes {"seed": 1, "share": 0.1, "kinds": ["error", ...]}; every later request draws one of the kinds with
that share. No more than `MOST_IN_A_ROW` requests fail one after another, as clients give up after a few attempts.

    error    it is not done; the answer is 500 or 503
    late     it is done, half a second later
    dropped  it is not done; the connection ends without an answer
    lost     it is done; the connection ends without an answer
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

KINDS = ("error", "late", "dropped", "lost")
MOST_IN_A_ROW = 2
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class LosesRequests:
    """Wraps a WSGI application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._draw, self._share, self._kinds, self._in_a_row = random.Random(0), 0.0, list(KINDS), 0
        self.faults = 0

    def __call__(self, environment: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request, or not."""
        if environment["PATH_INFO"] == "/-/faults":
            if environment["REQUEST_METHOD"] == "PUT":
                self._order(json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"]))))
            respond("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"faults": self.faults}).encode()]
        kind, status = self._next()
        if kind == "error":
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            respond(status, [("Content-Type", "text/plain")])
            return [b"the server has a fault"]
        if kind == "late":
            time.sleep(0.5)
        if kind == "dropped":
            _hang_up(environment)
        answer = self._app(environment, respond)
        if kind == "lost":
            b"".join(answer)
            _hang_up(environment)
        return answer

    def _order(self, orders: dict[str, Any]) -> None:
        with self._lock:
            self._draw, self._share = random.Random(orders["seed"]), orders["share"]
            self._kinds, self._in_a_row, self.faults = orders.get("kinds", list(KINDS)), 0, 0

    def _next(self) -> tuple[str | None, str]:
        with self._lock:
            fails = self._draw.random() < self._share and self._in_a_row < MOST_IN_A_ROW
            kind, status = self._draw.choice(self._kinds), self._draw.choice(("500 Internal", "503 Slow Down"))
            self._in_a_row = self._in_a_row + 1 if fails else 0
            self.faults += fails
            return (kind if fails else None), status


def _hang_up(environment: dict[str, Any]) -> NoReturn:
    connection: socket.socket = environment["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError  # which the server takes for a client that has gone


def main() -> None:
    """Serve until standard input ends, which it does with the process that started this one, however that ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = LosesRequests(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    begun = Path(f"{sys.argv[1]}-begun")
    begun.write_text(str(server.port), encoding="utf-8")
    begun.rename(sys.argv[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
