"""An input split: the part of the inputs that one worker reads at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from tokenfree.preprocess.records.wiki_site import Site

Format = Literal["xml", "bz2", "gz", "xz", "zst", "text", "jsonl", "parquet", "hf"]


@dataclass(frozen=True)
class InputSplit:
    """A part of the inputs that one worker reads at once.

    A dump's part is the pages that start in `[start, end)` of its only input (bytes of the file as it is stored; for
    bz2, in the streams that start there). Parts of JSONL are byte ranges too, those of Parquet ranges of row
    groups, those of a Hugging Face dataset ranges of rows.
    Text books come several files together, read whole. `names` are the inputs' names in ids, `versions` tell whether
    an input has changed since (size and ETag or time), and `size` estimates the bytes after decompression.
    """

    kind: Literal["wikipedia", "books"]
    format: Format
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    versions: tuple[str, ...]
    languages: tuple[str, ...]
    start: int
    end: int
    size: int
    language_given: bool = False  # by the job, so that it wins over what a line of a table says
    site: Site | None = None
    encoding: str = "utf-8"
    rooted: bool = False  # the dump opens with <mediawiki>, so one without </mediawiki> has lost its end
    text_column: str = "text"  # this one and the next two: of a table
    id_column: str = "id"
    language_column: str = "language"
    needs_ns: bool = False  # export formats from 0.6 on carry <ns>; a page without it is broken

    @property
    def id(self) -> str:
        """A name for files, unique among the splits of a job and the same in each run of it, in any order of inputs."""
        label = self.site.database if self.site else "books"
        extent = json.dumps([self.kind, self.inputs, self.start, self.end]).encode()
        return f"{label}-{hashlib.blake2b(extent, digest_size=8).hexdigest()}"

    def to_json(self) -> str:
        """One line of JSON; equal splits give equal lines."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["site"] = self.site.to_dict() if self.site else None
        return json.dumps(values, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> InputSplit:
        """The split that `to_json` described."""
        values = json.loads(line)
        for name in ("inputs", "names", "versions", "languages"):
            values[name] = tuple(values[name])
        values["site"] = Site.from_dict(values["site"]) if values["site"] else None
        return cls(**values)
