"""Download Wikipedia dumps: find the files of a dump, resume each over HTTP, and check its SHA-1.

A file is `NAME.part` until it is complete. Files of a dump never change under their name, and their SHA-1 shows whether
a resumed file is intact. `NAME.part.lock` excludes a second command.
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
ATTEMPTS = 8  # consecutive attempts without a new byte; with BACKOFF, two minutes of an unreachable server
BACKOFF = 1.0  # seconds before the second attempt; doubled for each attempt after it
LONGEST_WAIT = 300.0  # seconds; the command fails if a server asks for more
TIMEOUT = 60.0  # seconds without a byte
UNSIZED_BYTES = 30_000_000_000  # maximum for a file of unknown size; English Wikipedia in one file has 25 GB
TEXT_BYTES = 1 << 24  # maximum for a list; that of English Wikipedia has a third of a megabyte
_PASSES = (408, 429, *range(500, 600))
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Absent(Exception):
    """The server has nothing at this address (404, 410)."""


class _Passing(Exception):
    """A failure that may be temporary. The server asks to `wait` some seconds before another attempt."""

    def __init__(self, said: str, wait: float = 0.0) -> None:
        super().__init__(said)
        self.wait = wait


@dataclass(frozen=True)
class Client:
    """Requests to a server, repeated after failures that may be temporary."""

    backoff: float = BACKOFF
    timeout: float = TIMEOUT
    notice: Callable[[str], None] = print  # receives the reasons for waiting
    allow_http: bool = False  # also unencrypted, which anyone on the way can change
    unsized_bytes: int = UNSIZED_BYTES  # maximum for a file whose size the server does not report

    def text(self, url: str) -> str:
        """Return a small text, decoded as UTF-8.

        Raises:
            Absent: There is no such text.
            JobError: The text cannot be downloaded, or is too large.
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
        """Return the bytes of a file, or None if the server does not report them.

        Raises:
            Absent: There is no such file.
            JobError: The server cannot be asked.
        """

        def attempt() -> str:
            with self._open("HEAD", url) as response:
                return response.headers.get("Content-Length", "")

        length = self._repeat(url, attempt)
        return int(length) if re.fullmatch("[0-9]{1,18}", length) else None

    def fetch(self, url: str, path: Path, *, size: int | None, sha1: str, progress: Callable[[int, int], None]) -> None:
        """Download `url` to `path`, or what an earlier command left to download.

        Args:
            url: Address of the file.
            path: Final path of the file.
            size: Bytes of the whole file, if known.
            sha1: Expected SHA-1 of the file, in hex.
            progress: Called with the bytes on disk so far and the new bytes since its last call.

        Raises:
            Absent: The server has no such file.
            JobError: The file cannot be downloaded, is larger than allowed, or has another SHA-1, in which case it is
                removed.
            UserError: The disk is full, or another command downloads the same file.
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
        """Request the missing bytes of `part` once."""
        most = self.unsized_bytes if size is None else size
        with open(part, "ab") as file:
            have = _size(part)
            if have == size:
                return
            with self._open("GET", url, {"Range": f"bytes={have}-"} if have else {}) as response:
                if response.status_code == requests.codes.requested_range_not_satisfiable:
                    file.truncate(0)
                    raise _Passing("the file is shorter than what came of it")
                if have and response.status_code != requests.codes.partial_content:  # the server ignored Range
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
            # Hashes are of the stored bytes, so refuse compression in transit.
            session.headers.update({"User-Agent": user_agent(), "Accept-Encoding": "identity"})
            if not self.allow_http:  # covers redirects, too
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
    """Return the User-Agent that servers receive."""
    return f"tokenfree/{own_version()} (tokenfree download)"


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Lock a file against other commands, and report a full disk."""
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
    """Yield the body as it arrives, so that everything received before a disconnection is kept."""
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
    """Raise the error of a status of 400 or higher, except that of a range outside the file."""
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
    """Return the message of the innermost of nested errors. The outer ones repeat the address and each other."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__ or next(iter(error.args), None)
        if not isinstance(inner, BaseException):
            return getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
        error = inner


MIRROR = "https://dumps.wikimedia.org"
LATEST = "latest"
_PROJECT = re.compile(r"\w+wik(?:i|tionary|ibooks|inews|iquote|isource|iversity|ivoyage)")
# BCP 47 of the wikis whose own code differs: yue -> zh-yue. `en` does not name simplewiki.
_WIKI_CODES = {tag.lower(): code for code, tag in WIKIMEDIA_LANGUAGES.items() if tag not in ("en", code)}
_SUM = re.compile(r"^([0-9a-f]{40})[ *]+(\S+)\s*$", re.MULTILINE)
MOST_DATES = 100  # newest ones in a listing to consider; a mirror has about ten
_DATED_FOLDER = re.compile(r'href="(?:[^"]*/)?(\d{8})/"')


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump. `sha1` is in hex, as the mirror lists it."""

    name: str
    url: str
    sha1: str


@dataclass(frozen=True)
class Dump:
    """The files of one wiki's dump that contain its articles, and the index files of a multistream dump."""

    wiki: str
    date: str
    files: tuple[DumpFile, ...]

    @property
    def articles(self) -> list[str]:
        """Names of the files to pass to `tokenfree preprocess`, which finds an index next to its dump."""
        return [file.name for file in self.files if ".xml" in file.name]


def database(name: str) -> str:
    """Return the database of a language code or database name: `sw` -> `swwiki`, `zh-yue` -> `zh_yuewiki`.

    Raises:
        UserError: The name can be neither.
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
        """Return the mirror with this address.

        Raises:
            UserError: The address is not HTTPS (or HTTP if the client allows that).
        """
        parts = None
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # urlsplit rejects the port
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
        """Return the dump of a wiki: of a date, or the newest with all articles. Prefers multistream dumps.

        Args:
            name: Language code or database name.
            date: YYYYMMDD or `latest`.

        Raises:
            UserError: The mirror does not know the wiki or the date, or the dump has no articles yet.
            JobError: The mirror cannot be asked.
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
        """Return the SHA-1 by name of the files of a dump that are written so far; empty if there is no such dump."""
        with contextlib.suppress(Absent):
            text = self.client.text(f"{self.url}/{wiki}/{date}/{wiki}-{date}-sha1sums.txt")
            return {name: sha1 for sha1, name in _SUM.findall(text)}
        return {}

    def _dates(self, wiki: str) -> list[str]:
        """Return dates of dumps, newest first: of the folders that the mirror lists, and of its newest dump."""
        dates = {name.split("-")[1] for name in self._sums(wiki, LATEST) if "-" in name}
        with contextlib.suppress(Absent):
            dates.update(_DATED_FOLDER.findall(self.client.text(f"{self.url}/{wiki}/")))
        return sorted(filter(re.compile("[0-9]{8}").fullmatch, dates), reverse=True)[:MOST_DATES]

    def _choose(self, wiki: str, date: str, sums: Mapping[str, str], kind: str) -> list[str]:
        """Return the names of the articles and of their index, in one file or in numbered parts; [] if incomplete."""
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
        """Return True if all parts exist. A dump that is being written lists its first parts already."""
        try:
            status = json.loads(self.client.text(f"{self.url}/{wiki}/{date}/dumpstatus.json"))
            return status["jobs"][job]["status"] == "done"
        except (Absent, ValueError, KeyError, TypeError):  # a mirror may lack it; the numbers must suffice
            return True


@dataclass(frozen=True)
class Item:
    """A file to download to `path`. `size` is in bytes, or None if unknown; `have` bytes are on disk."""

    file: DumpFile
    path: Path
    state: Literal["whole", "begun", "damaged", "absent"]
    size: int | None
    have: int


@dataclass(frozen=True)
class Progress:
    """Bytes on disk of all files, their total (None: unknown), and the bytes that this command received."""

    name: str
    done: int
    total: int | None
    received: int


def plan(dumps: Sequence[Dump], folder: Path, client: Client) -> list[Item]:
    """Return the state of each file of `dumps`. Checks the SHA-1 of files that are in `folder`.

    Raises:
        JobError: The mirror lists a file that it does not have.
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
    """Download what is missing into `folder`, one file after another, because mirrors ask for few connections.

    Raises:
        UserError: The disk lacks space for all files (checked before the start), or is full.
        JobError: A file cannot be downloaded, or its SHA-1 is not the listed one.
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
    """Check that the missing bytes fit on the disk of `folder`.

    Raises:
        UserError: They do not fit.
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
