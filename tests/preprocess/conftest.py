"""A mirror of Wikipedia dumps on this machine, with the faults that mirrors have."""

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class DumpServer:
    """Serves `files` (bytes by path); faults are used up in order, one a GET of their path."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Callable[["Answer"], None]]] = field(default_factory=dict)
    ranges: bool = True
    lengths: str = "told"  # or "untold", where the end of the connection is the end of the file, or "chunked"
    # Method, path, status, bytes of the body sent.
    log: list[tuple[str, str, int, int]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)

    def publish(self, wiki: str, date: str, files: dict[str, bytes], *, latest: bool = True) -> None:
        """Put a dump there; names are without `WIKI-DATE-`."""
        sums = ""
        for name, data in files.items():
            self.files[f"/{wiki}/{date}/{wiki}-{date}-{name}"] = data
            sums += f"{hashlib.sha1(data).hexdigest()}  {wiki}-{date}-{name}\n"
        self.files[f"/{wiki}/{date}/{wiki}-{date}-sha1sums.txt"] = sums.encode()
        if latest:
            self.files[f"/{wiki}/latest/{wiki}-latest-sha1sums.txt"] = sums.encode()
        dates = sorted({path.split("/")[2] for path in self.files if path.startswith(f"/{wiki}/")} - {""})
        self.files[f"/{wiki}/"] = "".join(f'<a href="{name}/">{name}/</a>\n' for name in dates).encode()

    def fault(self, path: str, *faults: Callable[["Answer"], None]) -> None:
        """What the next requests of `path` meet."""
        self.faults.setdefault(path, []).extend(faults)

    def cut(self, size: int) -> Callable[["Answer"], None]:
        """A connection that ends after `size` bytes of the body."""
        return lambda answer: setattr(answer, "longest", size)

    def refuse(self, status: int, **headers: str) -> Callable[["Answer"], None]:
        """An answer without the file, such as 503 with `Retry_After`."""
        return lambda answer: answer.refuse(
            status, {key.replace("_", "-"): value for key, value in headers.items()}
        )

    def gets(self, path: str) -> list[tuple[int, int]]:
        """Status and bytes sent of each GET of `path`."""
        return [
            (status, sent) for method, asked, status, sent in self.log if method == "GET" and asked == path
        ]


class Answer(BaseHTTPRequestHandler):
    """One request, with Range as RFC 9110 has it."""

    served: DumpServer
    longest: int | None = None
    refused = False

    def do_GET(self) -> None:
        faults = self.served.faults.get(self.path)
        if faults:
            faults.pop(0)(self)
        if not self.refused:
            self.send(body=True)

    def do_HEAD(self) -> None:
        self.send(body=False)

    def send(self, *, body: bool) -> None:
        self.served.agents.add(self.headers["User-Agent"])
        data = self.served.files.get(self.path)
        if data is None:
            self.refuse(404, {})
            return
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if self.served.ranges else None
        start = int(wanted[1]) if wanted else 0
        if start >= len(data) > 0:
            self.refuse(416, {"Content-Range": f"bytes */{len(data)}"})
            return
        status = 206 if start else 200
        if self.served.lengths == "chunked":
            self.protocol_version, self.close_connection = "HTTP/1.1", True
        self.send_response(status)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if self.served.lengths == "told":
            self.send_header("Content-Length", str(len(data) - start))
        elif self.served.lengths == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = data[start:][: self.longest] if body else b""
        self.served.log.append((self.command, self.path, status, len(sent)))
        if body and self.served.lengths == "chunked":
            sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent)
        with contextlib.suppress(ConnectionError):  # who asked has enough
            self.wfile.write(sent)

    def refuse(self, status: int, headers: dict[str, str]) -> None:
        self.refused = True
        self.served.log.append((self.command, self.path, status, 0))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the test reads `log`."""


@pytest.fixture
def dump_server() -> Iterator[DumpServer]:
    """A running DumpServer, empty."""
    served = DumpServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Answer,), {"served": served})) as server:
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
