"""A data directory on the page: how much of which language, and what became of the pages."""

from collections.abc import Sequence

from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.workflows.report.figures import line_figures as figures
from tokenfree.workflows.report.load import DataRecord
from tokenfree.workflows.report.sections.parts import Block, Section, Table, count

MOST_LANGUAGES = 16


def corpus_section(record: DataRecord) -> Section:
    """The section of one data directory, by its manifest."""
    manifest = record.manifest
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    languages: dict[str, int] = {}
    for shard in shards:
        languages[shard.language] = languages.get(shard.language, 0) + shard.characters
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    fates = _fates(manifest)
    totals = {name: sum(getattr(shard, name) for shard in shards) for name in ("documents", "rows", "characters")}
    pictures = [figures.bars(_top(ranked), title="Characters by language", x="characters", log=len(ranked) > 1)]
    if fates:
        pictures.append(figures.bars(fates, title="What became of the pages", x="pages", log=True))
    tables = [
        Table("Characters by language", ["language", "characters"], [[k, f"{v:,}"] for k, v in ranked], folded=True),
        Table(
            "What became of the pages", ["pages that were", "number"], [[k, f"{v:,.0f}"] for k, v in fates], folded=True
        ),
    ]
    return Section(
        title=f"Corpus · {record.name}",
        subtitle=str(record.path),
        numbers=[
            (f"{totals['documents']:,}", "documents"),
            (f"{totals['rows']:,}", "windows"),
            (count(totals["characters"]), "characters"),
            (str(len(languages)), "languages" if len(languages) > 1 else "language"),
            (str(len(shards)), "shards" if len(shards) > 1 else "shard"),
        ],
        blocks=[Block("", pictures=pictures, tables=[table for table in tables if table.rows])],
    )


def _fates(manifest: Manifest) -> list[tuple[str, float]]:
    """Pages by what became of them: the parts that the manifest's counters reconcile, those without a page left out."""
    counters = manifest.counters
    rows = [
        (name.replace("_", " "), counters.get(name, 0))
        for name in ("documents", "redirects", "other_namespaces", "duplicates")
    ]
    for kind in ("filtered", "failed"):
        found = sorted(counters.get(kind, {}).items())
        rows += [(f"{kind}: {reason.replace('_', ' ')}", number) for reason, number in found]
    return [(name, number) for name, number in rows if number]


def _top(ranked: Sequence[tuple[str, int]]) -> list[tuple[str, float]]:
    rest = sum(number for _, number in ranked[MOST_LANGUAGES:])
    return [*ranked[:MOST_LANGUAGES], *([(f"{len(ranked) - MOST_LANGUAGES} more", rest)] if rest else [])]
