"""The front matter of a data directory's card: what the hub of Hugging Face and `datasets.load_dataset` read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.sources.books.books import UNDETERMINED
from tokenfree.preprocess.sources.inputs.languages import wikimedia_database

SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B", "10B<n<100B")
LARGER = ("100B<n<1T", "n>1T")
# Wikipedia's text is under version 4.0 of the licence since 7 June 2023, before that under 3.0.
NEW_TERMS = "20230607"
_WIKIPEDIA = re.compile(r"wiki-(\d{8})-")


def front_matter(manifest: Manifest) -> str:
    """The YAML between its two lines of dashes: the same bytes for the same data."""
    from huggingface_hub import DatasetCardData  # here, as the readers of a data directory have no use for it

    languages = sorted(set(manifest.statistics["languages"]) - {UNDETERMINED})
    data = DatasetCardData(
        language=languages or None,
        license=licence(manifest.inputs),
        size_categories=[size_category(manifest.counters["windows"])],
        task_categories=["fill-mask"],
        tags=["tokenfree", "character-level"],
        configs=[{"config_name": "default", "data_files": data_files(manifest)}],
    )
    return f"---\n{data.to_yaml()}\n---"


def data_files(manifest: Manifest) -> list[dict[str, str]]:
    """The shards of each split that has some; other Arrow files there are none of."""
    return [{"split": name, "path": f"{name}/*.arrow"} for name, split in manifest.splits.items() if split.shards]


def licence(inputs: tuple[Mapping[str, Any], ...]) -> list[str] | str | None:
    """The licence of the text: known where all inputs are dumps of Wikipedia with a date, by their names."""
    found = set()
    for entry in inputs:
        name = posixpath.basename(entry["path"])
        database, dated = wikimedia_database(name), _WIKIPEDIA.search(name)
        if database is None or dated is None:
            return None
        found.add("cc-by-sa-4.0" if dated.group(1) >= NEW_TERMS else "cc-by-sa-3.0")
    return sorted(found) if len(found) > 1 else next(iter(found), None)


def size_category(rows: int) -> str:
    """The hub's name for a dataset of so many rows."""
    limit = 1000
    for name in (*SIZES, *LARGER[:1]):
        if rows < limit:
            return name
        limit *= 10
    return LARGER[1]
