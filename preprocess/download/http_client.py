"""A file over HTTP, whole or not at all: bounded retries, resuming with Range, and a check of its SHA-1."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import importlib.metadata
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.local_files import hash_file
from tokenfree.preprocess.common.retry import retry
from tokenfree.preprocess.download.partial_file import BLOCK, PartFile

T = TypeVar("T")

ATTEMPTS = 8  # in a row that bring no new byte; with BACKOFF, two minutes of an unreachable server
FIRST_ATTEMPTS = 5  # for lists and sizes, before which nothing is at stake: fifteen seconds
BACKOFF = 1.0  # seconds before the second attempt; twice as long before each one after it
LONGEST_WAIT = 300.0  # seconds; a server that asks for more is left alone
TIMEOUT = 60.0  # seconds without a byte
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class Absent(Exception):
    """The server has nothing at this address (404, 410)."""


class _Interrupted(Exception):
    """An attempt that failed in a way that may pass; `wait` is what the server asked for, in seconds."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _WrongRange(_Interrupted):
    """The server has not the range that was asked for: what is here belongs to no file of its."""


@dataclass(frozen=True)
class Client:
    """Requests to one server after another, each tried again while that makes sense."""

    backoff: float = BACKOFF
    timeout: float = TIMEOUT
    notice: Callable[[str], None] = print  # told why nothing moves

    def text(self, url: str) -> str:
        """A small text, read as UTF-8.

        Raises:
            Absent: there is none.
            JobError: it cannot be had.
        """

        def attempt() -> bytes:
            with self._open(url) as response, _network():
                data = response.read()
                if response.length:  # what is missing of Content-Length
                    raise _Interrupted("the connection was cut")
                return data

        return self._retry(url, attempt, FIRST_ATTEMPTS).decode("utf-8", errors="replace")

    def size(self, url: str) -> int | None:
        """Bytes of a file, None where the server does not tell.

        Raises:
            Absent: there is none.
            JobError: the server cannot be asked.
        """

        def attempt() -> int | None:
            with self._open(url, method="HEAD") as response:
                length = response.headers.get("Content-Length", "")
                return int(length) if length.isdecimal() else None

        return self._retry(url, attempt, FIRST_ATTEMPTS)

    def fetch(self, url: str, path: Path, *, size: int | None, sha1: str, progress: Callable[[int, int], None]) -> None:
        """Download `url` to `path`, going on with what an earlier command left.

        Args:
            url: of the file.
            path: where it is to be in the end; what is missing of it lies beside that.
            size: bytes of the whole file, where known.
            sha1: what the file must have, in hex.
            progress: called with the bytes here so far and the bytes that are new since its last call.

        Raises:
            Absent: the server has no such file.
            JobError: it cannot be had, or has another SHA-1; then nothing of it is kept.
            UserError: the disk is full, or another command downloads the same file.
        """
        part = PartFile(path)
        highest = part.size()
        if size is not None and highest > size:
            part.remove()
            highest = 0

        def attempt() -> None:
            if size is None or part.size() != size:
                try:
                    self._receive(url, part, progress)
                except _WrongRange:
                    part.remove()
                    raise

        def moved() -> bool:
            nonlocal highest
            before, highest = highest, max(highest, part.size())
            return highest > before

        self._retry(url, attempt, ATTEMPTS, moved)
        self.notice(f"{path.name}: checking SHA-1")
        found = hash_file(part.path, "sha1")
        if found != sha1:
            part.remove()
            raise JobError(
                f"{path.name}: SHA-1 is {found}, but {sha1} was expected; what came was removed: give the same "
                "command again, or another --mirror"
            )
        part.commit()

    def _receive(self, url: str, part: PartFile, progress: Callable[[int, int], None]) -> None:
        """One request for what is missing of `part`."""
        with part.opened() as file:
            have = part.size()
            with self._open(url, part.range_headers(have)) as response:
                if have and response.status == http.client.PARTIAL_CONTENT:
                    answered = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
                    if answered is None or int(answered.group(1)) != have:
                        raise _WrongRange("the server sent another range than was asked for")
                else:  # the file from its start: no Range here, or another file than the one begun
                    if have:
                        file.truncate(0)
                        have = 0
                    part.remember(response.headers)
                while True:
                    with _network():
                        block = response.read1(BLOCK)
                    if not block:
                        break
                    file.write(block)
                    have += len(block)
                    progress(have, len(block))
                if response.length:
                    raise _Interrupted("the connection was cut")

    def _retry(self, url: str, attempt: Callable[[], T], most: int, moved: Callable[[], bool] = lambda: False) -> T:
        try:
            return retry(
                attempt,
                again=lambda error: isinstance(error, _Interrupted) and error.wait <= LONGEST_WAIT,
                pause=self.backoff,
                attempts=most,
                shortest_pause=_wait_asked,
                progressed=moved,
                notice=lambda error, wait: self.notice(f"{error}; again in {wait:.0f} s"),
            )
        except _Interrupted as error:
            asked = f", and asks to wait {error.wait:.0f} s" if error.wait > LONGEST_WAIT else ""
            remedy = "give the same command later, which goes on from what came, or another --mirror"
            raise JobError(f"{url}: {error}{asked}; {remedy}") from error

    @contextlib.contextmanager
    def _open(
        self, url: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Iterator[http.client.HTTPResponse]:
        request = urllib.request.Request(url, headers={"User-Agent": user_agent(), **(headers or {})}, method=method)
        try:
            with _network():
                response = urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise _explained(url, error) from error
        with response:
            yield response


def user_agent() -> str:
    """What the servers are told of who asks."""
    return f"tokenfree/{importlib.metadata.version('tokenfree')} (tokenfree download)"


@contextlib.contextmanager
def _network() -> Iterator[None]:
    """Turn what goes wrong on the way into an interruption; HTTPError is an answer, and passes."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise JobError(
                f"the server's certificate is not trusted ({reason.verify_message}); check --mirror"
            ) from error
        raise _Interrupted(f"no connection ({getattr(reason, 'strerror', None) or reason})") from error


def _explained(url: str, error: urllib.error.HTTPError) -> Exception:
    """What an answer of 400 and above means."""
    if error.code in (404, 410):
        return Absent(url)
    said = f"the server answered {error.code} {error.reason}"
    if error.code == 416:
        return _WrongRange(said)
    if error.code in (408, 429) or error.code >= 500:
        return _Interrupted(said, wait=_seconds(error.headers.get("Retry-After", "")))
    return JobError(f"{url}: {said}; check --mirror")


def _wait_asked(error: Exception) -> float:
    return error.wait if isinstance(error, _Interrupted) else 0.0


def _seconds(retry_after: str) -> float:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
