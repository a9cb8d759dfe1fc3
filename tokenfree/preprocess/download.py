"""Download Wikipedia dumps: find the files of a dump, resume each over HTTP, check its SHA-1.

A file is `NAME.part` until it is complete. `NAME.part.etag` holds the version of the server's file, so that a later
command resumes the same version only; `NAME.part.lock` excludes a second command. urllib3 repeats unanswered requests;
transfers that were cut are resumed here.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from typing_extensions import Self
from urllib3.util import Retry

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import hash_file, lock
from tokenfree.core.machine import own_version
from tokenfree.core.storage import retry
from tokenfree.preprocess.sources.files import WIKIMEDIA_LANGUAGES

BLOCK = 1 << 18
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class PartFile:
    """The unfinished form of the file `final`."""

    final: Path

    @property
    def path(self) -> Path:
        """What is here so far."""
        return self.final.with_name(self.final.name + ".part")

    @property
    def etag(self) -> Path:
        """Holds an ETag or a date, as the server wrote it; empty where the server tells neither."""
        return self.final.with_name(self.final.name + ".part.etag")

    @property
    def lock(self) -> Path:
        """The lock of the process that receives the file."""
        return self.final.with_name(self.final.name + ".part.lock")

    def size(self) -> int:
        """Bytes here so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def range_headers(self, have: int) -> dict[str, str]:
        """Asks for what is missing, on the condition that the file is still the one begun."""
        if not have:
            return {}
        known = self.etag.read_text(encoding="latin-1") if self.etag.exists() else ""
        return {"Range": f"bytes={have}-", **({"If-Range": known} if known else {})}

    def remember(self, headers: Any) -> None:
        """Keep what tells one version of the file from another. A weak ETag may not be used for ranges (RFC 9110)."""
        strong = headers.get("ETag", "")
        known = strong if strong.startswith('"') else headers.get("Last-Modified", "")
        self.etag.write_text(known, encoding="latin-1")

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The file opened to append to it, by one process at a time.

        Raises:
            UserError: the disk is full, or another process has the file open.
        """
        held = UserError(f"{self.path}: another command is downloading this file; wait for it")
        try:
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(JobError):  # a disk without locks: the SHA-1 still guards
                    stack.enter_context(lock(self.lock, seconds=0, held=held))
                    stack.callback(self.lock.unlink, missing_ok=True)  # before it is let go; nobody waits for it
                yield stack.enter_context(open(self.path, "ab"))
        except OSError as error:
            if error.errno in _FULL:
                raise UserError(f"{self.path}: the disk is full; free space and give the same command again") from error
            raise

    def remove(self) -> None:
        """Forget what is here, and what is known of it."""
        for path in (self.path, self.etag, self.lock):
            path.unlink(missing_ok=True)

    def commit(self) -> None:
        """Give the file its final name, once its bytes are on the disk."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.path, self.final)
        self.remove()


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


MIRROR = "https://dumps.wikimedia.org"
LATEST = "latest"
_PROJECT = re.compile(r"\w+wik(?:i|tionary|ibooks|inews|iquote|isource|iversity|ivoyage)")
# BCP 47 of the wikis whose own code is another one: yue -> zh-yue. `en` is no name of simplewiki.
_WIKI_CODES = {tag.lower(): code for code, tag in WIKIMEDIA_LANGUAGES.items() if tag not in ("en", code)}
_SUM = re.compile(r"^([0-9a-f]{40})[ *]+(\S+)\s*$", re.MULTILINE)
MOST_DATES = 100  # newest ones of a listing that are looked at; a mirror has about ten
_DATED_FOLDER = re.compile(r'href="(?:[^"]*/)?(\d{8})/"')


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump; `sha1` in hex, as the mirror lists it."""

    name: str
    url: str
    sha1: str


@dataclass(frozen=True)
class Dump:
    """The files of one wiki's dump that hold its articles, with the index files of a multistream dump."""

    wiki: str
    date: str
    files: tuple[DumpFile, ...]

    @property
    def articles(self) -> list[str]:
        """Names of the files to give to `tokenfree preprocess`, which finds an index beside its dump."""
        return [file.name for file in self.files if ".xml" in file.name]


def database(name: str) -> str:
    """The database of a language code or database name: `sw` -> `swwiki`, `zh-yue` -> `zh_yuewiki`.

    Raises:
        UserError: it can be neither.
    """
    code = name.lower()
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", code):
        raise UserError(f"{name}: no name of a wiki; give a language code (sw) or a database name (swwiki)")
    code = _WIKI_CODES.get(code, code).replace("-", "_")
    return code if _PROJECT.fullmatch(code) else code + "wiki"


@dataclass(frozen=True)
class Mirror:
    """A server that has dumps at `URL/WIKI/DATE/`, as dumps.wikimedia.org does."""

    url: str
    client: Client

    @classmethod
    def at(cls, url: str, client: Client) -> Mirror:
        """The mirror with this address.

        Raises:
            UserError: it is no address of HTTPS; of HTTP where the client allows that.
        """
        parts = None
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # what urlsplit says of a port
            good = False
        if not good or parts is None or not re.fullmatch(r"[!-~]+", url):
            raise UserError(f"--mirror {url}: not an https:// or http:// address, such as {MIRROR}")
        if parts.scheme == "http" and not client.allow_http:
            raise UserError(
                f"--mirror {url}: anyone on the way could change what http:// brings, hashes too; give its https:// "
                "address, or --allow-http"
            )
        return cls(url.rstrip("/"), client)

    def dump(self, name: str, date: str = LATEST) -> Dump:
        """The dump of a wiki of a date, or the newest that has its articles: multistream, if any has them so.

        Args:
            name: a language code or a database name.
            date: YYYYMMDD or `latest`.

        Raises:
            UserError: the mirror does not know the wiki or the date, or the dump has no articles yet.
            JobError: the mirror cannot be asked.
        """
        wiki = database(name)
        if not re.fullmatch(rf"[0-9]{{8}}|{LATEST}", date):
            raise UserError(f"--date {date}: neither 'latest' nor a date such as 20260301")
        single_stream = None
        for found, sums in self._newest(wiki) if date == LATEST else [(date, self._dated(wiki, date))]:
            if names := self._choose(wiki, found, sums, "-multistream"):
                return self._dump(wiki, found, names, sums)
            if single_stream is None and (names := self._choose(wiki, found, sums, "")):
                single_stream = self._dump(wiki, found, names, sums)
        if single_stream is None:
            raise UserError(f"{wiki} {date}: {self.url} lists no complete articles dump; give an earlier --date")
        return single_stream

    def _newest(self, wiki: str) -> Iterator[tuple[str, dict[str, str]]]:
        """(date, SHA-1 by name) of the dumps there are, newest first; those being written are among them."""
        tried = set()
        sums = self._sums(wiki, LATEST) or {}
        named = re.compile(rf"{wiki}-(\d{{8}})-")
        for date in sorted({match.group(1) for name in sums if (match := named.match(name))}, reverse=True):
            tried.add(date)
            yield date, sums
        dates = self._dates(wiki)
        if not tried and not dates:
            raise self._unknown(wiki)
        for date in dates:
            if date not in tried:
                yield date, self._sums(wiki, date) or {}

    def _dated(self, wiki: str, date: str) -> dict[str, str]:
        sums = self._sums(wiki, date)
        if sums is not None:
            return sums
        dates = self._dates(wiki)
        if not dates:
            raise self._unknown(wiki)
        raise UserError(f"--date {date}: {self.url} has no such dump of {wiki}; it has {', '.join(dates[:8])}")

    def _unknown(self, wiki: str) -> UserError:
        return UserError(
            f"{wiki}: {self.url} has no dump of a wiki of this name; give a language code (sw) or a database name "
            "(swwiki)"
        )

    def _sums(self, wiki: str, date: str) -> dict[str, str] | None:
        try:
            text = self.client.text(f"{self.url}/{wiki}/{date}/{wiki}-{date}-sha1sums.txt")
        except Absent:
            return None
        return {name: sha1 for sha1, name in _SUM.findall(text)}

    def _dates(self, wiki: str) -> list[str]:
        """Dates of the folders that the mirror shows, newest first."""
        try:
            listing = self.client.text(f"{self.url}/{wiki}/")
        except Absent:
            return []
        return sorted(set(_DATED_FOLDER.findall(listing)), reverse=True)[:MOST_DATES]

    def _choose(self, wiki: str, date: str, sums: Mapping[str, str], kind: str) -> list[str]:
        """Names of the articles and of their index, each in one file or in numbered parts; none where incomplete."""
        stem = f"{wiki}-{date}-pages-articles{kind}"
        if f"{stem}.xml.bz2" in sums:
            return [name for name in (f"{stem}.xml.bz2", f"{stem}-index.txt.bz2") if name in sums]
        part = re.compile(rf"{stem}(-index)?(\d+)\.(?:xml|txt)(?:-p(\d+)p\d+)?\.bz2")
        parts = sorted(
            (int(match[2]), int(match[3] or 0), match[1] or "", name)
            for name in sums
            if (match := part.fullmatch(name))
        )
        numbers = {number for number, _, index, _ in parts if not index}
        if numbers != set(range(1, len(numbers) + 1)) or not numbers:
            return []
        return [name for *_, name in parts] if self._finished(wiki, date, f"articles{kind[1:]}dump") else []

    def _finished(self, wiki: str, date: str, job: str) -> bool:
        """Whether all parts are there: a dump being written lists the first ones already."""
        try:
            status = json.loads(self.client.text(f"{self.url}/{wiki}/{date}/dumpstatus.json"))
            return status["jobs"][job]["status"] == "done"
        except (Absent, ValueError, KeyError, TypeError):  # mirrors may leave it out; then the numbers must do
            return True

    def _dump(self, wiki: str, date: str, names: Sequence[str], sums: Mapping[str, str]) -> Dump:
        files = (DumpFile(name, f"{self.url}/{wiki}/{date}/{name}", sums[name]) for name in names)
        return Dump(wiki, date, tuple(files))


@dataclass(frozen=True)
class Item:
    """A file to have at `path`; `size` in bytes where the server tells it, `have` of which are here already."""

    file: DumpFile
    path: Path
    state: Literal["whole", "begun", "damaged", "absent"]
    size: int | None
    have: int


@dataclass(frozen=True)
class Progress:
    """Bytes of all files here so far, of how many (None: unknown), and how many of them this command received."""

    name: str
    done: int
    total: int | None
    received: int


def plan(dumps: Sequence[Dump], folder: Path, client: Client) -> list[Item]:
    """What is to be done for each file of `dumps`; the SHA-1 of those that are in `folder` is checked.

    Raises:
        JobError: a file is listed, but the mirror does not have it.
    """
    return [_item(file, folder / file.name, client) for dump in dumps for file in dump.files]


def _item(file: DumpFile, path: Path, client: Client) -> Item:
    if path.exists():
        client.notice(f"{file.name}: checking SHA-1")
        if hash_file(path, "sha1") == file.sha1:
            return Item(file, path, "whole", path.stat().st_size, path.stat().st_size)
    try:
        size = client.size(file.url)
    except Absent:
        raise _missing(file) from None
    have = PartFile(path).size()
    return Item(file, path, "damaged" if path.exists() else "begun" if have else "absent", size, have)


def download(
    items: Sequence[Item], folder: Path, client: Client, progress: Callable[[Progress], None] = lambda _: None
) -> None:
    """Get what is not here yet into `folder`, one file after another: mirrors ask for few connections.

    Raises:
        UserError: there is no room for it all (asked before the start), or the disk is full.
        JobError: a file cannot be had, or has another SHA-1 than listed.
    """
    check_room(items, folder)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [item.size for item in items]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    before = received = 0
    for item in items:
        if item.state != "whole":

            def show(done: int, new: int, item: Item = item, before: int = before) -> None:
                nonlocal received
                received += new
                progress(Progress(item.file.name, before + done, total, received))

            try:
                client.fetch(item.file.url, item.path, size=item.size, sha1=item.file.sha1, progress=show)
            except Absent:
                raise _missing(item.file) from None
        before += item.path.stat().st_size


def check_room(items: Sequence[Item], folder: Path) -> None:
    """Check that what is missing fits on the disk of `folder`.

    Raises:
        UserError: it does not.
    """
    need = sum(max(0, item.size - item.have) for item in items if item.state != "whole" and item.size is not None)
    standing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(standing).free
    if need > free:
        raise UserError(
            f"--output {folder}: {need / 1e6:,.1f} MB are needed and {free / 1e6:,.1f} MB are free there; free "
            f"{(need - free) / 1e6:,.1f} MB or give another folder"
        )


def _missing(file: DumpFile) -> JobError:
    return JobError(f"{file.url}: listed by the mirror, but not there; give another --mirror or an earlier --date")
