"""The wiki that a dump comes from: its database name, its language and what its namespaces are called there."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What MediaWiki understands on every wiki, whatever its language (includes/language: $namespaceNames and aliases).
CANONICAL_NAMESPACES: dict[int, tuple[str, ...]] = {
    -2: ("Media",),
    -1: ("Special",),
    0: ("",),
    1: ("Talk",),
    2: ("User",),
    3: ("User talk",),
    4: ("Project",),
    5: ("Project talk",),
    6: ("File", "Image"),
    7: ("File talk", "Image talk"),
    8: ("MediaWiki",),
    9: ("MediaWiki talk",),
    10: ("Template",),
    11: ("Template talk",),
    12: ("Help",),
    13: ("Help talk",),
    14: ("Category",),
    15: ("Category talk",),
}
UNKNOWN_DATABASE = "wiki"
_NAMESPACE = re.compile(r'<namespace\s[^<>]*?\bkey="(-?\d{1,9})"[^<>]*?(?:/>|>([^<]*)</namespace>)')
_DATABASE = re.compile(r"<dbname>\s*([^<\s]+)\s*</dbname>")
_LANGUAGE = re.compile(r'<mediawiki\b[^<>]*?\bxml:lang="([^"]+)"')


@dataclass(frozen=True)
class Site:
    """One wiki: `database` such as `enwiki`, `language` as BCP 47, names of each namespace, the local one first."""

    database: str
    language: str
    namespaces: Mapping[int, tuple[str, ...]]

    def __hash__(self) -> int:
        return hash((self.database, self.language, tuple(sorted(self.namespaces.items()))))

    @classmethod
    def from_siteinfo(cls, xml: str, *, database: str | None = None, language: str | None = None) -> Site:
        """The site that the head of a dump describes; `database` and `language`, where given, win over the head.

        A head without <siteinfo> gives the names that every wiki understands, and `wiki` and `und` for what is unknown.
        """
        names = {key: list(canonical) for key, canonical in CANONICAL_NAMESPACES.items()}
        for key, name in _NAMESPACE.findall(xml):
            local = html.unescape(name).strip()
            others = [other for other in names.get(int(key), []) if other != local]
            names[int(key)] = [local, *others]
        found_database = _DATABASE.search(xml)
        found_language = _LANGUAGE.search(xml)
        return cls(
            database=database or (found_database.group(1) if found_database else UNKNOWN_DATABASE),
            language=language or (found_language.group(1) if found_language else "und"),
            namespaces={key: tuple(names[key]) for key in sorted(names)},
        )

    def namespace_of(self, title: str) -> int:
        """The namespace that the title's prefix names, 0 where it names none: for dumps too old to carry <ns>."""
        prefix, colon, _ = title.partition(":")
        wanted = prefix.replace("_", " ").strip().casefold()
        if not colon or not wanted:
            return 0
        return next((key for key, names in self.namespaces.items() if wanted in map(str.casefold, names)), 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; `from_dict` takes them back."""
        namespaces = {str(key): list(names) for key, names in self.namespaces.items()}
        return {"database": self.database, "language": self.language, "namespaces": namespaces}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Site:
        """The site that `to_dict` described."""
        namespaces = {int(key): tuple(names) for key, names in values["namespaces"].items()}
        return cls(database=values["database"], language=values["language"], namespaces=namespaces)
