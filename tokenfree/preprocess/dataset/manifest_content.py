"""What manifest.json has to hold beside its shards, for all who read it from there; see `checked`.

Keys that are not named are for people.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, with_config
from typing_extensions import NotRequired, TypedDict

from tokenfree.preprocess.common.stored.stored_files import OPEN

Count = Annotated[int, Field(ge=0)]


@with_config(OPEN)
class _Window(TypedDict):
    max_characters: Count
    pack: str


@with_config(OPEN)
class _Config(TypedDict):
    columns: list[str]
    window: _Window


@with_config(OPEN)
class _Input(TypedDict):
    path: str
    size: Count
    sha256: str


@with_config(OPEN)
class _Counters(TypedDict):
    pages: Count
    documents: Count
    redirects: Count
    other_namespaces: Count
    duplicates: Count
    near_duplicates: NotRequired[Count]
    filtered: dict[str, Count]
    failed: dict[str, Count]
    windows: Count
    characters: Count
    subwords: Count
    byte_pieces: NotRequired[Count]


@with_config(OPEN)
class _Shard(TypedDict):
    path: str
    language: str
    rows: Count
    documents: Count
    characters: Count
    bytes: Count
    sha256: str


@with_config(OPEN)
class _Split(TypedDict):
    shards: list[_Shard]


@with_config(OPEN)
class ManifestContent(TypedDict):
    """The values of manifest.json."""

    config: _Config
    config_fingerprint: str
    versions: dict[str, str]
    inputs: list[_Input]
    vocabulary_sha256: str | None
    vocabulary_size: Count | None
    splits: dict[str, _Split]
    counters: _Counters
    statistics: dict[str, Any]
    fingerprint: str
    files: NotRequired[dict[str, str]]
