"""Which files a wiki's newest or dated dump has on dumps.wikimedia.org or on a mirror of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.download.http_client import Absent, Client
from tokenfree.preprocess.sources.inputs.languages import WIKIMEDIA_LANGUAGES

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
