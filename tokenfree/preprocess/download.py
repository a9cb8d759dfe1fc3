"""Download Wikipedia dumps: find the files of a dump, resume each over HTTP, and check its SHA-1.

A file is `NAME.part` until it is complete. Files of a dump never change under their name, and their SHA-1
shows whether a resumed file is intact. `NAME.part.lock` excludes a second command.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import requests

from tokenfree.core.errors import JobError, UserError, first_line
from tokenfree.core.files import hash_file, sync
from tokenfree.core.locks import exclusive
from tokenfree.core.machine import version_of, within
from tokenfree.core.storage import retry
from tokenfree.preprocess.sources.files import WIKIMEDIA_LANGUAGES

T = TypeVar("T")
BLOCK = 1 << 14  # at most this much is received again after a disconnection
ATTEMPTS = 8  # consecutive attempts without a new block
BACKOFF = 1.0  # seconds before the second attempt; doubled for each attempt after it
TIMEOUT = 60.0  # seconds without a byte
ANSWER_SECONDS = 8.0  # until the first answer of a mirror, with all attempts
MIRROR = "https://dumps.wikimedia.org"
LATEST = "latest"
MAX_DATES = 100  # newest ones in a listing to consider; a mirror has about ten
_ADDRESS = re.compile(r"(https?)://(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::\d+)?(?:/[!-~]*)?")
_PROJECT = re.compile(r"\w+wik(?:i|tionary|ibooks|inews|iquote|isource|iversity|ivoyage)")
# BCP 47 of the wikis whose own code differs: yue -> zh-yue. `en` does not name simplewiki.
_WIKI_CODES = {tag.lower(): code for code, tag in WIKIMEDIA_LANGUAGES.items() if tag not in ("en", code)}
_SUM = re.compile(r"^([0-9a-f]{40})[ *]+(\S+)\s*$", re.MULTILINE)
_DATED_FOLDER = re.compile(r'href="(?:[^"]*/)?(\d{8})/"')


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump. `sha1` is in hex, as the mirror lists it."""

    name: str
    url: str
    sha1: str


@dataclass(frozen=True)
class Dump:
    """The files of one wiki's dump that contain its articles."""

    wiki: str
    date: str
    files: tuple[DumpFile, ...]


@dataclass(frozen=True)
class Item:
    """A file to download to `path`, unless it `is_whole` there. `size` is in bytes."""

    file: DumpFile
    path: Path
    size: int
    is_whole: bool


@dataclass(frozen=True)
class Progress:
    """Bytes on disk of all files, their total, and the bytes that this command received."""

    name: str
    done: int
    total: int
    received: int


def database(name: str) -> str:
    """Return the database (`zh_yuewiki`) of a language code or database name.

    Raises UserError for other names.
    """
    code = name.lower()
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", code):
        raise UserError(f"{name}: no name of a wiki; give a language code (sw) or a database name (swwiki)")
    code = _WIKI_CODES.get(code, code).replace("-", "_")
    return code if _PROJECT.fullmatch(code) else code + "wiki"


@dataclass(frozen=True)
class Mirror:
    """A server that has dumps at `URL/WIKI/DATE/`, as dumps.wikimedia.org does.

    `notice` receives the reasons for waiting.
    """

    url: str
    allow_http: bool = False
    notice: Callable[[str], None] = print

    def check(self) -> None:
        """Raise UserError if the address is not HTTPS, or HTTP if that is allowed, and JobError if nothing answers."""
        address = _ADDRESS.fullmatch(self.url)
        if address is None:
            raise UserError(f"--mirror {self.url}: not an https:// or http:// address, such as {MIRROR}")
        if address[1] == "http" and not self.allow_http:
            raise UserError(f"--mirror {self.url}: not encrypted; give its https:// address, or --allow-http")

        def ask() -> None:
            with self._open("HEAD", self.url):
                pass

        wait = functools.partial(
            retry, ask, again=_may_pass, pause=BACKOFF, seconds=ANSWER_SECONDS, notice=self._tell
        )
        try:
            within(ANSWER_SECONDS, wait)
        except (TimeoutError, requests.ConnectionError, requests.Timeout) as error:
            raise JobError(
                f"{self.url}: {_reason(error)}. Check the network, give another --mirror, or use a dump that you have: "
                "tokenfree preprocess wikipedia-tiny --wikipedia FILE --output DIR"
            ) from error
        except requests.RequestException:  # it answers, if only that this page cannot be had
            pass

    def dump(self, name: str, date: str = LATEST) -> Dump:
        """Return the dump of a wiki (language code or database) of a date (YYYYMMDD), or the newest with all articles.

        Prefers multistream dumps. Raises UserError if the mirror does not know the wiki or the date, or the
        dump has no articles yet, and JobError if the mirror cannot be asked.
        """
        wiki = database(name)
        if not re.fullmatch(rf"[0-9]{{8}}|{LATEST}", date):
            raise UserError(f"--date {date}: neither 'latest' nor a date such as 20260301")
        all_dates = self._dates(wiki)
        dates = all_dates if date == LATEST else [date]
        sums = {dump_date: self._sums(wiki, dump_date) for dump_date in dates}
        for kind in ("-multistream", ""):
            for dump_date in dates:
                if names := self._choose(wiki, dump_date, sums[dump_date], kind):
                    files = (
                        DumpFile(name, f"{self.url}/{wiki}/{dump_date}/{name}", sums[dump_date][name])
                        for name in names
                    )
                    return Dump(wiki, dump_date, tuple(files))
        raise UserError(
            f"{wiki}: {self.url} lists no complete articles dump (--date {date}). Check the name of the wiki, or give "
            f"--date one of {', '.join(all_dates[:8]) or 'none'}"
        )

    def _sums(self, wiki: str, date: str) -> dict[str, str]:
        """Return the SHA-1 by name of the files of a dump that are written so far; empty if there is no such dump."""
        text = self._text(f"{self.url}/{wiki}/{date}/{wiki}-{date}-sha1sums.txt")
        return {name: sha1 for sha1, name in _SUM.findall(text)}

    def _dates(self, wiki: str) -> list[str]:
        dates = {name.split("-")[1] for name in self._sums(wiki, LATEST) if "-" in name}
        dates.update(_DATED_FOLDER.findall(self._text(f"{self.url}/{wiki}/")))
        return sorted(filter(re.compile("[0-9]{8}").fullmatch, dates), reverse=True)[:MAX_DATES]

    def _choose(self, wiki: str, date: str, sums: Mapping[str, str], kind: str) -> list[str]:
        """Return the names of the articles, in one file or in numbered parts; [] if incomplete."""
        stem = f"{wiki}-{date}-pages-articles{kind}"
        if f"{stem}.xml.bz2" in sums:
            return [f"{stem}.xml.bz2"]
        part = re.compile(rf"{stem}(\d+)\.xml(?:-p(\d+)p\d+)?\.bz2")
        matches = (match for name in sums if (match := part.fullmatch(name)))
        parts = sorted((int(match[1]), int(match[2] or 0), match[0]) for match in matches)
        numbers = {number for number, *_ in parts}
        if numbers != set(range(1, len(numbers) + 1)) or not numbers:
            return []
        return [name for *_, name in parts] if self._finished(wiki, date, f"articles{kind[1:]}dump") else []

    def _finished(self, wiki: str, date: str, job: str) -> bool:
        """Return True if all parts exist. A dump that is being written lists its first parts already."""
        try:
            status = json.loads(self._text(f"{self.url}/{wiki}/{date}/dumpstatus.json"))
            return status["jobs"][job]["status"] == "done"
        except (ValueError, KeyError, TypeError):  # a mirror may lack it; the numbers must suffice
            return True

    def _text(self, url: str) -> str:
        def attempt() -> str:
            with self._open("GET", url, missing_ok=True) as response:
                return response.content.decode(errors="replace") if response.ok else ""

        return self._repeat(url, attempt)

    def size(self, url: str) -> int:
        """Return the bytes of a file.

        Raises JobError if it does not exist, or the server does not report its size.
        """

        def attempt() -> str:
            with self._open("HEAD", url) as response:
                return response.headers.get("Content-Length", "")

        length = self._repeat(url, attempt)
        if not re.fullmatch("[0-9]{1,18}", length):
            raise JobError(f"{url}: the server does not report the size of this file; give another --mirror")
        return int(length)

    def fetch(self, item: Item, progress: Callable[[int, int], None]) -> None:
        """Download a file, or what is missing of it. `progress` is called with the bytes on disk and the new ones.

        Raises JobError if the file cannot be downloaded or has another SHA-1 (it is then removed), and
        UserError if another command downloads it.
        """
        url, part = item.file.url, item.path.with_name(item.path.name + ".part")
        highest = _size(part)

        def moved() -> bool:
            nonlocal highest
            previous, highest = highest, max(highest, _size(part))
            return highest > previous

        held = UserError(f"{part}: another command is downloading this file; wait for it")
        with exclusive(part.with_name(part.name + ".lock"), held):
            self._repeat(url, lambda: self._receive(url, part, item.size, progress), moved)
            self.notice(f"{item.file.name}: checking SHA-1")
            if hash_file(part, "sha1") != item.file.sha1:
                part.unlink()
                raise JobError(
                    f"{item.file.name}: its SHA-1 is not {item.file.sha1}. It was removed. Run the same command again, "
                    "or give another --mirror"
                )
            sync(part)
            os.replace(part, item.path)

    def _receive(self, url: str, part: Path, size: int, progress: Callable[[int, int], None]) -> None:
        with open(part, "ab") as file:
            have = _size(part)
            if have == size:
                return
            if have > size:
                file.truncate(have := 0)
            with self._open("GET", url, {"Range": f"bytes={have}-"} if have else {}) as response:
                # The server ignored Range.
                if have and response.status_code != requests.codes.partial_content:
                    file.truncate(have := 0)
                for block in response.iter_content(BLOCK):
                    have += len(block)
                    if have > size:
                        raise JobError(f"{url}: more than its {size:,} bytes came; give another --mirror")
                    file.write(block)
                    progress(have, len(block))

    def _repeat(self, url: str, attempt: Callable[[], T], moved: Callable[[], bool] = lambda: False) -> T:
        try:
            return retry(
                attempt,
                again=_may_pass,
                pause=BACKOFF,
                attempts=ATTEMPTS,
                progressed=moved,
                notice=self._tell,
            )
        except requests.RequestException as error:
            raise JobError(
                f"{url}: {_reason(error)}. Run the same command again later, which resumes, or give another --mirror"
            ) from error

    def _tell(self, error: Exception, wait: float) -> None:
        self.notice(f"{_reason(error)}; again in {wait:.0f} s")

    @contextlib.contextmanager
    def _open(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, missing_ok: bool = False
    ) -> Iterator[requests.Response]:
        with requests.Session() as session:
            # Hashes are of the stored bytes, so refuse compression in transit.
            agent = f"tokenfree/{version_of('tokenfree')} (tokenfree download)"
            session.headers.update({"User-Agent": agent, "Accept-Encoding": "identity"})
            # Covers redirects, too.
            if not self.allow_http:
                del session.adapters["http://"]
            with session.request(method, url, headers=headers, timeout=TIMEOUT, stream=True) as response:
                if not (missing_ok and response.status_code in (404, 410)):
                    response.raise_for_status()
                yield response


def _reason(error: Exception) -> str:
    """Return why a request failed, without the object of urllib3 and the URL that it names first."""
    reason = getattr(error.args[0] if error.args else None, "reason", None) or error
    return re.sub(r"^(<[^>]*>|\w+\([^)]*\)): ", "", first_line(reason))


def _may_pass(error: Exception) -> bool:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        code = error.response.status_code
        return code in (408, 429) or code >= 500
    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, lost) and not isinstance(error, requests.exceptions.SSLError)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def plan(dumps: Sequence[Dump], folder: Path, mirror: Mirror) -> list[Item]:
    """Return the files of `dumps`.

    Checks the SHA-1 of those in `folder`. Raises JobError if the mirror lacks one.
    """
    items = []
    for file in (file for dump in dumps for file in dump.files):
        path = folder / file.name
        is_whole = path.exists() and hash_file(path, "sha1") == file.sha1
        items.append(Item(file, path, _size(path) if is_whole else mirror.size(file.url), is_whole))
    return items


def download(
    items: Sequence[Item], folder: Path, mirror: Mirror, progress: Callable[[Progress], None] = lambda _: None
) -> None:
    """Download what is missing into `folder`, one file after another, because mirrors ask for few connections.

    Raises UserError if another command downloads one of the files, and JobError if a file cannot be
    downloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(item.size for item in items)
    offset = received = 0
    for item in items:
        if not item.is_whole:

            def show(done: int, new: int, item: Item = item, offset: int = offset) -> None:
                nonlocal received
                received += new
                progress(Progress(item.file.name, offset + done, total, received))

            mirror.fetch(item, show)
        offset += item.size
