"""The parts of `tokenfree inspect`: tables of counts and columns, and windows with their features marked."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.schema import schema
from tokenfree.preprocess.features.vocabulary import Vocabulary

ALTERNATE = ("cyan", "yellow")
BLOCK = "█"


def counts_table(manifest: Manifest) -> Table:
    """Documents, windows, characters and shards by split and language."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("split", "language"):
        table.add_column(name)
    for name in ("documents", "windows", "characters", "MB", "shards"):
        table.add_column(name, justify="right")
    for split, content in manifest.splits.items():
        for language in sorted({shard.language for shard in content.shards}):
            shards = [shard for shard in content.shards if shard.language == language]
            sums = [
                sum(getattr(shard, key) for shard in shards) for key in ("documents", "rows", "characters", "bytes")
            ]
            numbers = [f"{number:,}" for number in sums[:3]] + [f"{sums[3] / 1e6:,.1f}", str(len(shards))]
            table.add_row(split, language, *numbers)
    return table


def pages_line(manifest: Manifest) -> str:
    """What became of the pages that were read."""
    counters = manifest.counters
    parts = [f"{counters['pages']:,} read"]
    for name in ("documents", "redirects", "other_namespaces", "duplicates"):
        parts += [f"{counters[name]:,} {name.replace('_', ' ')}"] if counters[name] else []
    for kind in ("filtered", "failed"):
        parts += [f"{count:,} {kind} ({reason})" for reason, count in sorted(counters[kind].items()) if count]
    return "\n[bold]pages[/]  " + ", ".join(parts)


def columns_table(manifest: Manifest) -> Table:
    """The columns with their types."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("\ncolumn")
    table.add_column("\ntype")
    for field in schema(manifest.config["columns"]):
        table.add_row(field.name, str(field.type).replace(" not null", ""))
    return table


def show_windows(console: Console, directory: str, manifest: Manifest, *, num_windows: int, width: int) -> None:
    """Print `num_windows` windows, spread evenly over the training split, the first `width` characters of each."""
    storage = Storage.at(directory)
    vocabulary = None
    if manifest.vocabulary_sha256 is not None:
        vocabulary = Vocabulary.load(storage.read_bytes("vocabulary/subwords.model"))
    for number, row in _sample(storage, manifest, num_windows):
        known = {name: row.column(name)[0] for name in row.schema.names}
        text = known["text"].as_py()
        label = " ".join(str(known[name]) for name in ("document", "language") if name in known)
        console.print(f"\n[bold]window {number:,}[/]  {label}, {len(text):,} characters")
        shown = text[:width] + ("…" if len(text) > width else "")
        console.print(Text(shown.replace("\n", "⏎ ")))
        if "word_starts" in known:
            encoded = text.encode()
            spans = [
                (len(encoded[:start].decode()), len(encoded[:end].decode()))
                for start, end in _spans(row, "word")
                if start <= 4 * width  # bytes: enough for `width` characters
            ]
            console.print(_marked(console, "words", text[:width], spans, "|"))
        if "subword_starts" in known and vocabulary is not None:
            console.print(_marked(console, "subwords", text[:width], _spans(row, "subword"), "·"))
            console.print(_masked(row, vocabulary, number, width))


def _spans(row: pa.RecordBatch, kind: str) -> list[tuple[int, int]]:
    starts, ends = (row.column(f"{kind}_{side}")[0].values.to_pylist() for side in ("starts", "ends"))
    return list(zip(starts, ends, strict=True))


def _sample(storage: Storage, manifest: Manifest, num_windows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows (number in the training split, the row), evenly spaced."""
    shards = manifest.splits["train"].shards
    bounds = np.cumsum([0, *(shard.rows for shard in shards)])
    chosen = np.unique(np.linspace(0, bounds[-1] - 1, num_windows).astype(int)) if bounds[-1] and num_windows else []
    for number in chosen:
        index = int(np.searchsorted(bounds, number, side="right")) - 1
        with storage.open(shards[index].path) as file:
            offset = int(number - bounds[index])
            for batch in pa.ipc.open_stream(file):
                if offset < batch.num_rows:
                    yield int(number), batch.slice(offset, 1)
                    break
                offset -= batch.num_rows


def _marked(console: Console, title: str, shown: str, spans: Sequence[tuple[int, int]], separator: str) -> Text:
    """The text with its spans in alternating colours, or parted by `separator` where there are no colours."""
    text = Text(f"{title:<9}", style="bold")
    coloured = console.is_terminal and console.color_system is not None
    before = 0
    for index, (start, end) in enumerate(span for span in spans if span[1] <= len(shown)):
        gap = shown[before:start] if coloured else separator if index else ""
        text.append(gap.replace("\n", "⏎ "), style="not bold dim")
        text.append(shown[start:end], style=f"not bold {ALTERNATE[index % 2]}")
        before = end
    return text


def _masked(row: pa.RecordBatch, vocabulary: Vocabulary, number: int, width: int) -> Text:
    """The window as CANINE-S would see it: masked characters as blocks, replaced ones underlined."""
    from tokenfree.train.batches.framing import MASK
    from tokenfree.train.objectives.canine_s import Config

    text = Text("masks    ", style="bold")
    window, config = row.column("codepoints")[0].values.to_numpy(), Config()
    collate = config.collator(vocabulary, len(window) + 2 + config.spare, seed=0)
    columns = {name: [row.column(name)[0].values.to_numpy()] for name in collate.columns}
    seen = collate(columns, np.array([number]))["codepoints"][0, 1 : len(window) + 1]
    for old, new in zip(window[:width], seen[:width], strict=True):
        if new == MASK:
            text.append(BLOCK, style="not bold magenta")
        else:
            text.append(chr(new).replace("\n", "⏎"), style="not bold" if old == new else "not bold underline magenta")
    return text
