"""The parts of `tokenfree inspect`: tables of counts and columns, and windows with their features marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokenfree.core.errors import one_line
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.records import schema
from tokenfree.workflows.inspection import BLOCK, Piece, Window, on_one_line

ALTERNATE = ("cyan", "yellow")


def counts(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Documents, windows, characters, bytes and shards of each split and language."""
    for split, content in manifest.splits.items():
        for language in sorted({shard.language for shard in content.shards}):
            shards = [shard for shard in content.shards if shard.language == language]
            names = {"documents": "documents", "windows": "rows", "characters": "characters", "bytes": "bytes"}
            sums = {name: sum(getattr(shard, key) for shard in shards) for name, key in names.items()}
            yield {"split": split, "language": language, **sums, "shards": len(shards)}


def counts_table(manifest: Manifest) -> Table:
    """The same as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("split", "language"):
        table.add_column(name)
    for name in ("documents", "windows", "characters", "MB", "shards"):
        table.add_column(name, justify="right")
    for row in counts(manifest):
        numbers = [f"{row[name]:,}" for name in ("documents", "windows", "characters")]
        table.add_row(row["split"], row["language"], *numbers, f"{row['bytes'] / 1e6:,.1f}", f"{row['shards']:,}")
    return table


def pages_line(manifest: Manifest) -> Text:
    """What became of the pages that were read."""
    counters = manifest.counters
    parts = [f"{counters['pages']:,} read"]
    for name in ("documents", "redirects", "other_namespaces", "duplicates"):
        parts += [f"{counters[name]:,} {name.replace('_', ' ')}"] if counters[name] else []
    for kind in ("filtered", "failed"):
        parts += [f"{count:,} {kind} ({reason})" for reason, count in sorted(counters[kind].items()) if count]
    return Text.assemble("\n", ("pages", "bold"), "  ", one_line(", ".join(parts)))


def columns(manifest: Manifest) -> dict[str, str]:
    """The columns with their types."""
    return {field.name: str(field.type).replace(" not null", "") for field in schema(manifest.config["columns"])}


def columns_table(manifest: Manifest) -> Table:
    """The same as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("\ncolumn")
    table.add_column("\ntype")
    for name, type in columns(manifest).items():
        table.add_row(name, type)
    return table


def show_window(console: Console, window: Window) -> None:
    """Print a window, with its words, subwords and masks below it."""
    labels = " ".join(window.labels.values())
    heading = ("\n", (f"window {window.number:,}", "bold"), f"  {one_line(labels)}, {window.characters:,} characters")
    console.print(Text.assemble(*heading))
    rest = "…" if window.characters > len(window.text) else ""
    console.print(Text(on_one_line(window.text) + rest))
    if window.words is not None:
        console.print(_marked(console, "words", window.text, window.words, "|"))
    if window.subwords is not None:
        console.print(_marked(console, "subwords", window.text, window.subwords, "·"))
    if window.masked is not None:
        console.print(_with_masks(window.text, window.masked))


def _marked(console: Console, title: str, shown: str, pieces: Sequence[Piece], separator: str) -> Text:
    """The text with its pieces in alternating colours, or parted by `separator` where there are no colours."""
    text = Text(f"{title:<9}", style="bold")
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    before = 0
    for index, piece in enumerate(pieces):
        gap = shown[before : piece.start] if coloured else separator if index else ""
        text.append(on_one_line(gap), style="not bold dim")
        text.append(piece.text, style=f"not bold {ALTERNATE[index % 2]}")
        before = piece.end
    return text


def _with_masks(before: str, masked: str) -> Text:
    """Blocks coloured, replaced characters underlined."""
    text = Text("masks    ", style="bold")
    for old, new in zip(before, masked, strict=True):
        style = "" if old == new else " magenta" if new == BLOCK else " underline magenta"
        text.append(new.replace("\n", "⏎"), style=f"not bold{style}")
    return text
