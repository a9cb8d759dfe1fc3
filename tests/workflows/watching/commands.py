"""Commands that are watched, with inputs that take seconds, and who is told of them."""

import contextlib
import json
import pydoc_data.topics as topics
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.train.conftest import RECIPE, write_corpus


def tiny_pretraining(folder: Path) -> list[str]:
    """A command that trains eight steps; its output, the last argument, is `folder`/run."""
    texts = [(name, text[:2000]) for name, text in sorted(topics.topics.items())[:45]]
    (folder / "data").mkdir()
    data = write_corpus(folder / "data", texts, max_characters=48, vocabulary=400)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return ["pretrain", str(recipe), "--data", data, "--output", str(folder / "run")]


class Receiver(ThreadingHTTPServer):
    """A server of this machine that keeps what is posted to it, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keeps)
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook/SECRET"
        self.told: queue.Queue[dict[str, Any]] = queue.Queue()

    def next(self) -> dict[str, Any]:
        """The next notice, as it came."""
        return self.told.get(timeout=60)


class _Keeps(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert (self.path, self.headers["Content-Type"]) == ("/hook/SECRET", "application/json")
        self.server.told.put(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A server that runs during the block."""
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
