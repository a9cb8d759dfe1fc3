"""A file over HTTP, whole or not at all: bounded retries, resuming with Range, and a check of its SHA-1.

urllib3 repeats what was not answered, this file what was cut on the way.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from typing_extensions import Self
from urllib3.util import Retry

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.installed import own_version
from tokenfree.preprocess.common.local_files import hash_file
from tokenfree.preprocess.common.retry import retry
from tokenfree.preprocess.download.partial_file import BLOCK, PartFile

ATTEMPTS = 8  # in a row that bring no new byte; with BACKOFF, two minutes of an unreachable server
FIRST_ATTEMPTS = 5  # for lists and sizes, before which nothing is at stake: fifteen seconds
BACKOFF = 1.0  # seconds; twice as long before each attempt after the second
LONGEST_WAIT = 300.0  # seconds; a server that asks for more is left alone
TIMEOUT = 60.0  # seconds without a byte
UNSIZED_BYTES = 30_000_000_000  # of a file whose size is not told; English Wikipedia in one file has 25 GB
TEXT_BYTES, TEXT_SECONDS = 1 << 24, 300.0  # of a list at most; English Wikipedia's has a third of a megabyte
REDIRECTS = 5
_PASSES = (408, 429, *range(500, 600))
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class Absent(Exception):
    """The server has nothing at this address (404, 410)."""


class _Interrupted(Exception):
    """A body that was cut; the rest may come in another attempt."""


class _WrongRange(_Interrupted):
    """The server has not the range that was asked for: what is here belongs to no file of its."""


class _Retries(Retry):
    """Tells of each wait; leaves a server alone that asks for a long one."""

    notice: Callable[[str], None]

    def new(self, **changes: Any) -> Self:
        """As `Retry.new`, which `increment` calls."""
        made = super().new(**changes)
        made.notice = self.notice
        return made

    def parse_retry_after(self, retry_after: str) -> float:
        """Seconds that the header asks for: a number or a date; none where it is neither."""
        try:
            return super().parse_retry_after(retry_after)
        except urllib3.exceptions.InvalidHeader:
            return 0.0

    def sleep(self, response: urllib3.BaseHTTPResponse | None = None) -> None:
        """Wait until the next attempt.

        Raises:
            JobError: the server asks for longer than is waited.
        """
        last = list(self.history)[-1]
        said = f"no connection ({_root(last.error)})" if last.error else f"the server answered {last.status}"
        asked = self.get_retry_after(response) if response is not None else None
        if asked is not None and asked > LONGEST_WAIT:
            raise JobError(f"{said}, and asks to wait {asked:.0f} s; give the same command later, or another --mirror")
        self.notice(f"{said}; again in {asked or self.get_backoff_time():.0f} s")
        super().sleep(response)


@dataclass(frozen=True)
class Client:
    """Requests to one server after another, each tried again while that makes sense."""

    backoff: float = BACKOFF
    timeout: float = TIMEOUT
    notice: Callable[[str], None] = print  # told why nothing moves
    allow_http: bool = False  # also without encryption, which anyone on the way can change
    unsized_bytes: int = UNSIZED_BYTES  # at most taken of a file whose size the server does not tell

    def text(self, url: str) -> str:
        """A small text, read as UTF-8.

        Raises:
            Absent: there is none.
            JobError: it cannot be had, or is no small text.
        """

        def attempt() -> bytes:
            data, until = bytearray(), time.monotonic() + TEXT_SECONDS
            with self._open(url, FIRST_ATTEMPTS) as response:
                for block in _blocks(response):
                    data += block
                    if len(data) > TEXT_BYTES or time.monotonic() > until:
                        raise JobError(f"{url}: this list does not end; check --mirror")
            return bytes(data)

        return self._retry(url, attempt, FIRST_ATTEMPTS).decode("utf-8", errors="replace")

    def size(self, url: str) -> int | None:
        """Bytes of a file, None where the server does not tell.

        Raises:
            Absent: there is none.
            JobError: the server cannot be asked.
        """
        with self._open(url, FIRST_ATTEMPTS, method="HEAD") as response:
            length = response.headers.get("Content-Length", "")
            return int(length) if re.fullmatch("[0-9]{1,18}", length) else None

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
            JobError: it cannot be had, or has more bytes than are taken of a file of unknown size; or it has another
                SHA-1, then nothing of it is kept.
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
                    self._receive(url, part, size, progress)
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

    def _receive(self, url: str, part: PartFile, size: int | None, progress: Callable[[int, int], None]) -> None:
        """One request for what is missing of `part`."""
        with part.opened() as file:
            have = part.size()
            with self._open(url, ATTEMPTS, part.range_headers(have)) as response:
                if have and response.status_code == requests.codes.partial_content:
                    answered = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
                    if answered is None or int(answered.group(1)) != have:
                        raise _WrongRange("the server sent another range than was asked for")
                else:  # the file from its start: no Range here, or another file than the one begun
                    if have:
                        file.truncate(0)
                        have = 0
                    part.remember(response.headers)
                for block in _blocks(response):
                    have += len(block)
                    if size is not None and have > size:
                        raise _WrongRange(f"the server sends more than the {size:,} bytes that it told")
                    if size is None and have > self.unsized_bytes:
                        raise JobError(
                            f"{url}: the server does not tell its size, and more than {self.unsized_bytes / 1e9:g} GB "
                            f"came; what came is in {part.path}: raise --max-gb to go on, or remove it and give "
                            "another --mirror"
                        )
                    file.write(block)
                    progress(have, len(block))

    def _retry(self, url: str, attempt: Callable[[], Any], most: int, moved: Callable[[], bool] = lambda: False) -> Any:
        try:
            return retry(
                attempt,
                again=lambda error: isinstance(error, _Interrupted),
                pause=self.backoff,
                attempts=most,
                progressed=moved,
                notice=lambda error, wait: self.notice(f"{error}; again in {wait:.0f} s"),
            )
        except _Interrupted as error:
            raise _given_up(url, str(error)) from error

    @contextlib.contextmanager
    def _open(
        self, url: str, attempts: int, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Iterator[requests.Response]:
        with requests.Session() as session:
            self._prepare(session, attempts)
            try:
                response = session.request(method, url, headers=headers, timeout=self.timeout, stream=True)
            except JobError as error:
                raise JobError(f"{url}: {error}") from error
            except (requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
                raise JobError(f"{url}: {error}; check --mirror, or give --allow-http for http://") from error
            except requests.exceptions.SSLError as error:
                raise JobError(f"the server's certificate is not trusted ({_root(error)}); check --mirror") from error
            except requests.RequestException as error:
                raise _given_up(url, f"no connection ({_root(error)})") from error
            with response:
                _check(url, response)
                yield response

    def _prepare(self, session: requests.Session, attempts: int) -> None:
        retries = _Retries(
            total=attempts - 1,
            other=0,  # such as a certificate that is not trusted
            status_forcelist=_PASSES,
            raise_on_status=False,
            backoff_factor=self.backoff,
        )
        retries.notice = self.notice
        session.max_redirects = REDIRECTS
        # Hashes are of the bytes as they are stored.
        session.headers.update({"User-Agent": user_agent(), "Accept-Encoding": "identity"})
        session.adapters.clear()  # where redirects may lead to
        for scheme in ("https://", "http://") if self.allow_http else ("https://",):
            session.mount(scheme, HTTPAdapter(max_retries=retries))


def user_agent() -> str:
    """What the servers are told of who asks."""
    return f"tokenfree/{own_version()} (tokenfree download)"


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """The body as it comes, so that what was sent before a cut is kept."""
    while True:
        try:
            block = response.raw.read1(BLOCK, decode_content=False)
        except urllib3.exceptions.ProtocolError as error:
            raise _Interrupted("the connection was cut") from error
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise _Interrupted(f"no connection ({_root(error)})") from error
        if not block:
            return
        yield block


def _check(url: str, response: requests.Response) -> None:
    """Raise what an answer of 400 and above means."""
    code = response.status_code
    if code < 400:
        return
    said = f"the server answered {code} {response.reason}"
    if code in (404, 410):
        raise Absent(url)
    if code == 416:
        raise _WrongRange(said)
    raise _given_up(url, said) if code in _PASSES else JobError(f"{url}: {said}; check --mirror")


def _given_up(url: str, said: str) -> JobError:
    remedy = "give the same command later, which goes on from what came, or another --mirror"
    return JobError(f"{url}: {said}; {remedy}")


def _root(error: BaseException) -> str:
    """What the innermost of nested errors says: the outer ones repeat the address and themselves."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__ or next(iter(error.args), None)
        if not isinstance(inner, BaseException):
            return getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
        error = inner
