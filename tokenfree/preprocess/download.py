"""Download Wikipedia dumps: find the files of a dump, resume each over HTTP, check its SHA-1.

A file is `NAME.part` until it is complete. Files of a dump never change under their name, and their SHA-1 tells whether
what was resumed is whole. `NAME.part.lock` excludes a second command.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import hash_file, lock
from tokenfree.core.machine import own_version
from tokenfree.core.storage import retry
from tokenfree.preprocess.sources.files import WIKIMEDIA_LANGUAGES

T = TypeVar("T")
BLOCK = 1 << 18
ATTEMPTS = 8  # in a row that bring no new byte; with BACKOFF, two minutes of an unreachable server
BACKOFF = 1.0  # seconds before the second attempt; twice as long before each one after it
LONGEST_WAIT = 300.0  # seconds; a server that asks for more is left alone
TIMEOUT = 60.0  # seconds without a byte
UNSIZED_BYTES = 30_000_000_000  # of a file whose size is not told; English Wikipedia in one file has 25 GB
TEXT_BYTES = 1 << 24  # of a list at most; English Wikipedia's has a third of a megabyte
_PASSES = (408, 429, *range(500, 600))
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Absent(Exception):
    """The server has nothing at this address (404, 410)."""


class _Passing(Exception):
    """What may pass until another attempt, before which the server asks to `wait` some seconds."""

    def __init__(self, said: str, wait: float = 0.0) -> None:
        super().__init__(said)
        self.wait = wait


@dataclass(frozen=True)
class Client:
    """Requests to a server, each repeated while that makes sense."""

    backoff: float = BACKOFF
    timeout: float = TIMEOUT
    notice: Callable[[str], None] = print  # gets why nothing moves
    allow_http: bool = False  # also without encryption, which anyone on the way can change
    unsized_bytes: int = UNSIZED_BYTES  # at most taken of a file whose size the server does not tell

    def text(self, url: str) -> str:
        """A small text, read as UTF-8.

        Raises:
            Absent: there is none.
            JobError: it cannot be had, or is no small text.
        """

        def attempt() -> bytes:
            data = bytearray()
            with self._open("GET", url) as response:
                for block in _blocks(response):
                    data += block
                    if len(data) > TEXT_BYTES:
                        raise JobError(f"{url}: this list does not end; check --mirror")
            return bytes(data)

        return self._repeat(url, attempt).decode("utf-8", errors="replace")

    def size(self, url: str) -> int | None:
        """Bytes of a file, None where the server does not tell.

        Raises:
            Absent: there is none.
            JobError: the server cannot be asked.
        """

        def attempt() -> str:
            with self._open("HEAD", url) as response:
                return response.headers.get("Content-Length", "")

        length = self._repeat(url, attempt)
        return int(length) if re.fullmatch("[0-9]{1,18}", length) else None

    def fetch(self, url: str, path: Path, *, size: int | None, sha1: str, progress: Callable[[int, int], None]) -> None:
        """Download `url` to `path`, or what an earlier command left of it to do.

        Args:
            url: of the file.
            path: where it is to be in the end.
            size: bytes of the whole file, where known.
            sha1: what the file must have, in hex.
            progress: called with the bytes here so far and the bytes that are new since its last call.

        Raises:
            Absent: the server has no such file.
            JobError: it cannot be had, or has more bytes than are taken; or it has another SHA-1, then nothing of it is
                kept.
            UserError: the disk is full, or another command downloads the same file.
        """
        part = _part(path)
        highest = _size(part)

        def moved() -> bool:
            nonlocal highest
            before, highest = highest, max(highest, _size(part))
            return highest > before

        with _alone(part):
            self._repeat(url, lambda: self._receive(url, part, size, progress), moved)
            self.notice(f"{path.name}: checking SHA-1")
            found = hash_file(part, "sha1")
            if found != sha1:
                part.unlink()
                raise JobError(
                    f"{path.name}: SHA-1 is {found}, but {sha1} was expected; what came was removed: give the same "
                    "command again, or another --mirror"
                )
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, path)

    def _receive(self, url: str, part: Path, size: int | None, progress: Callable[[int, int], None]) -> None:
        """Ask once for what is missing of `part`."""
        most = self.unsized_bytes if size is None else size
        with open(part, "ab") as file:
            have = _size(part)
            if have == size:
                return
            with self._open("GET", url, {"Range": f"bytes={have}-"} if have else {}) as response:
                if response.status_code == requests.codes.requested_range_not_satisfiable:
                    file.truncate(0)
                    raise _Passing("the file is shorter than what came of it")
                if have and response.status_code != requests.codes.partial_content:  # the whole file: no Range here
                    file.truncate(0)
                    have = 0
                for block in _blocks(response):
                    have += len(block)
                    if have > most:
                        raise JobError(
                            f"{url}: more than {most / 1e9:g} GB came, which is its size or --max-gb; what came is in "
                            f"{part}: raise --max-gb to resume, or remove it and give another --mirror"
                        )
                    file.write(block)
                    progress(have, len(block))

    def _repeat(self, url: str, attempt: Callable[[], T], moved: Callable[[], bool] = lambda: False) -> T:
        try:
            return retry(
                attempt,
                again=lambda error: isinstance(error, _Passing),
                pause=self.backoff,
                attempts=ATTEMPTS,
                shortest_pause=lambda error: error.wait if isinstance(error, _Passing) else 0.0,
                progressed=moved,
                notice=lambda error, wait: self.notice(f"{error}; again in {wait:.0f} s"),
            )
        except _Passing as error:
            raise JobError(
                f"{url}: {error}; give the same command later, which resumes, or another --mirror"
            ) from error

    @contextlib.contextmanager
    def _open(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> Iterator[requests.Response]:
        with requests.Session() as session:
            # Hashes are of the bytes as they are stored.
            session.headers.update({"User-Agent": user_agent(), "Accept-Encoding": "identity"})
            if not self.allow_http:  # where redirects may lead to
                del session.adapters["http://"]
            try:
                response = session.request(method, url, headers=headers, timeout=self.timeout, stream=True)
            except (requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
                raise JobError(f"{url}: {error}; check --mirror, or give --allow-http for http://") from error
            except requests.exceptions.SSLError as error:
                raise JobError(f"the server's certificate is not trusted ({_root(error)}); check --mirror") from error
            except requests.RequestException as error:
                raise _Passing(f"no connection ({_root(error)})") from error
            with response:
                _check(url, response)
                yield response


def user_agent() -> str:
    """What the servers are told of who asks."""
    return f"tokenfree/{own_version()} (tokenfree download)"


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Hold a file against other commands, and say so if the disk is full."""
    held = UserError(f"{part}: another command is downloading this file; wait for it")
    name = part.with_name(part.name + ".lock")
    try:
        with lock(name, seconds=0, held=held):
            try:
                yield
            finally:
                name.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            raise UserError(f"{part}: the disk is full; free space and give the same command again") from error
        raise


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """The body as it comes, so that what was sent before a cut is kept."""
    while True:
        try:
            block = response.raw.read1(BLOCK, decode_content=False)
        except urllib3.exceptions.ProtocolError as error:
            raise _Passing("the connection was cut") from error
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise _Passing(f"no connection ({_root(error)})") from error
        if not block:
            return
        yield block


def _check(url: str, response: requests.Response) -> None:
    """Raise what an answer of 400 and above means, but that a range is none of the file."""
    code = response.status_code
    if code < 400 or code == requests.codes.requested_range_not_satisfiable:
        return
    said = f"the server answered {code} {response.reason}"
    if code in (404, 410):
        raise Absent(url)
    if code not in _PASSES:
        raise JobError(f"{url}: {said}; check --mirror")
    asked = response.headers.get("Retry-After", "")
    wait = float(asked) if asked.isdecimal() else 0.0
    if wait > LONGEST_WAIT:
        raise JobError(f"{url}: {said}, and asks to wait {asked} s; give the same command later, or another --mirror")
    raise _Passing(said, wait)


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
        dates = self._dates(wiki) if date == LATEST else [date]
        sums: dict[str, dict[str, str]] = {}
        for kind in ("-multistream", ""):
            for found in dates:
                if found not in sums:
                    sums[found] = self._sums(wiki, found)
                if names := self._choose(wiki, found, sums[found], kind):
                    files = (DumpFile(name, f"{self.url}/{wiki}/{found}/{name}", sums[found][name]) for name in names)
                    return Dump(wiki, found, tuple(files))
        others = dates if date == LATEST else self._dates(wiki)
        if not others:
            raise UserError(
                f"{wiki}: {self.url} has no dump of a wiki of this name; give a language code (sw) or a database name "
                "(swwiki)"
            )
        if not sums[dates[0]] and date != LATEST:
            raise UserError(f"--date {date}: {self.url} has no such dump of {wiki}; it has {', '.join(others[:8])}")
        raise UserError(f"{wiki} {date}: {self.url} lists no complete articles dump; give an earlier --date")

    def _sums(self, wiki: str, date: str) -> dict[str, str]:
        """SHA-1 by name of the files of a dump, or of those that are written so far; empty if there is no such dump."""
        with contextlib.suppress(Absent):
            text = self.client.text(f"{self.url}/{wiki}/{date}/{wiki}-{date}-sha1sums.txt")
            return {name: sha1 for sha1, name in _SUM.findall(text)}
        return {}

    def _dates(self, wiki: str) -> list[str]:
        """Dates of dumps, newest first: of the folders that the mirror shows, and of its newest dump."""
        dates = {name.split("-")[1] for name in self._sums(wiki, LATEST) if "-" in name}
        with contextlib.suppress(Absent):
            dates.update(_DATED_FOLDER.findall(self.client.text(f"{self.url}/{wiki}/")))
        return sorted(filter(re.compile("[0-9]{8}").fullmatch, dates), reverse=True)[:MOST_DATES]

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
    have = _size(_part(path))
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
