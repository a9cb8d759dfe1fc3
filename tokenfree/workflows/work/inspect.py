"""Do the work of `tokenfree inspect`: counts and columns, windows with their features marked, and embeddings."""

import argparse
import dataclasses
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.card import template_line, template_warning
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, load_manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import SUBWORD_COLUMNS, schema
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.preprocess.text.specials import MASK
from tokenfree.workflows.terminal.output import one_line
from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.terminal.results import counted, next_command

BLOCK = "█"
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # name of a byte-fallback piece


class Piece(NamedTuple):
    """A word or subword of a window: characters from `start` up to, but excluding, `end`, drawn as `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Window:
    """A window with its features. `text` may be only its first characters."""

    number: int  # position in the training split
    labels: Mapping[str, str]  # document and language, if the data have these columns
    characters: int  # number of characters of the whole window
    text: str
    words: Sequence[Piece] | None  # None if the data have no such columns
    subwords: Sequence[Piece] | None
    # As CANINE-S sees it, with blocks for masked characters; None without subwords or torch.
    masked: str | None


def windows(directory: str, manifest: Manifest, *, num_windows: int, width: int) -> Iterator[Window]:
    """Yield `num_windows` windows, evenly spaced in the training split, with the first `width` characters of each."""
    storage = Storage.at(directory)
    vocabulary = None
    if manifest.vocabulary_sha256 is not None:
        vocabulary = Vocabulary.load(storage.read_bytes("vocabulary/subwords.model"))
    for number, row in _sample(storage, manifest, num_windows):
        column_names = set(row.schema.names)
        text = row.column("text")[0].as_py()
        words = subwords = masked = None
        if "word_starts" in column_names:
            words = [
                Piece(*span, text[slice(*span)])
                for span in _character_spans(text, _spans(row, "word"), width)
            ]
        if "subword_starts" in column_names and vocabulary is not None:
            spelled = [vocabulary.pieces[id] for id in row.column("subword_ids")[0].values.to_pylist()]
            subwords = subword_pieces(text[:width], _spans(row, "subword"), spelled)
            masked = _masked(row, vocabulary, number, width)
        labels = {name: str(row.column(name)[0]) for name in ("document", "language") if name in column_names}
        yield Window(number, labels, len(text), text[:width], words, subwords, masked)


def subword_pieces(text: str, spans: Sequence[tuple[int, int]], names: Sequence[str]) -> list[Piece]:
    """Return the subwords of `text` from their spans and names.

    A run of bytes is one piece, drawn in `<>`.
    """
    pieces: list[Piece] = []
    in_bytes = False
    for (start, end), name in zip(spans, names, strict=True):
        if end > len(text):
            break
        goes_on = in_bytes
        in_bytes = bool(_BYTE.fullmatch(name))
        if in_bytes and goes_on and start <= pieces[-1].end:
            start = pieces.pop().start
        pieces.append(Piece(start, end, f"<{text[start:end]}>" if in_bytes else text[start:end]))
    return pieces


def _character_spans(text: str, spans: Sequence[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    encoded = text.encode()
    # In bytes; a character has at most 4.
    near = [span for span in spans if span[0] <= 4 * width]
    character_spans = [(len(encoded[:start].decode()), len(encoded[:end].decode())) for start, end in near]
    return [span for span in character_spans if span[1] <= width]


def _spans(row: pa.RecordBatch, kind: str) -> list[tuple[int, int]]:
    starts, ends = (row.column(f"{kind}_{side}")[0].values.to_pylist() for side in ("starts", "ends"))
    return list(zip(starts, ends, strict=True))


def _sample(storage: Storage, manifest: Manifest, num_windows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    shards = manifest.splits["train"].shards
    bounds = np.cumsum([0, *(shard.rows for shard in shards)])
    chosen = (
        np.unique(np.linspace(0, bounds[-1] - 1, num_windows).astype(int))
        if bounds[-1] and num_windows
        else []
    )
    for number in chosen:
        index = int(np.searchsorted(bounds, number, side="right")) - 1
        with storage.open(shards[index].path) as file:
            offset = int(number - bounds[index])
            for batch in pa.ipc.open_stream(file):
                if offset < batch.num_rows:
                    yield int(number), batch.slice(offset, 1)
                    break
                offset -= batch.num_rows


def _masked(row: pa.RecordBatch, vocabulary: Vocabulary, number: int, width: int) -> str | None:
    if importlib.util.find_spec("torch") is None:
        return None
    from tokenfree.train.objectives.canine_s import Config

    # Data may lack the column `codepoints`.
    window, config = codepoints_of(row.column("text")[0].as_py()).view(np.int32), Config()
    collate = config.collator(vocabulary, len(window) + 2 + config.spare, seed=0)
    spans = {name: [row.column(name)[0].values.to_numpy()] for name in SUBWORD_COLUMNS}
    seen = collate({"codepoints": [window], **spans}, np.array([number]))["codepoints"][
        0, 1 : len(window) + 1
    ]
    return "".join(BLOCK if new == MASK else chr(new) for new in seen[:width])


def counts(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for split, content in manifest.splits.items():
        for language in sorted({shard.language for shard in content.shards}):
            shards = [shard for shard in content.shards if shard.language == language]
            yield {
                "split": split,
                "language": language,
                "documents": sum(shard.documents for shard in shards),
                "windows": sum(shard.rows for shard in shards),
                "characters": sum(shard.characters for shard in shards),
                "bytes": sum(shard.bytes for shard in shards),
                "shards": len(shards),
            }


def counts_table(manifest: Manifest) -> Table:
    numbers = (
        Column(name, justify="right") for name in ("documents", "windows", "characters", "MB", "shards")
    )
    table = Table("split", "language", *numbers, box=None, header_style="bold", pad_edge=False)
    for row in counts(manifest):
        numbers = [f"{row[name]:,}" for name in ("documents", "windows", "characters")]
        table.add_row(
            row["split"], row["language"], *numbers, f"{row['bytes'] / 1e6:,.1f}", f"{row['shards']:,}"
        )
    return table


def pages_line(manifest: Manifest) -> Text:
    counters = manifest.counters
    parts = [f"{counters['pages']:,} read"]
    for name in ("documents", "redirects", "other_namespaces", "duplicates"):
        parts += [f"{counters[name]:,} {name.replace('_', ' ')}"] if counters[name] else []
    for kind in ("filtered", "failed"):
        parts += [f"{count:,} {kind} ({reason})" for reason, count in sorted(counters[kind].items()) if count]
    lines = Text.assemble("\n", ("pages", "bold"), "  ", one_line(", ".join(parts)))
    for text in filter(None, (template_line(counters), template_warning(counters))):
        lines.append_text(Text.assemble("\n", ("templates", "bold"), "  ", one_line(text)))
    return lines


def columns(manifest: Manifest) -> dict[str, str]:
    return {
        field.name: str(field.type).replace(" not null", "") for field in schema(manifest.config["columns"])
    }


def columns_table(manifest: Manifest) -> Table:
    table = Table("\ncolumn", "\ntype", box=None, header_style="bold", pad_edge=False)
    for name, type in columns(manifest).items():
        table.add_row(name, type)
    return table


def show_window(console: Console, window: Window) -> None:
    labels = " ".join(window.labels.values())
    heading = (
        "\n",
        (f"window {window.number:,}", "bold"),
        f"  {one_line(labels)}, {window.characters:,} characters",
    )
    console.print(Text.assemble(*heading))
    rest = "…" if window.characters > len(window.text) else ""
    console.print(Text(window.text.replace("\n", "⏎ ") + rest))
    if window.words is not None:
        console.print(_marked("words", window.words, "|"))
    if window.subwords is not None:
        console.print(_marked("subwords", window.subwords, "·"))
    if window.masked is not None:
        console.print(_with_masks(window.text, window.masked))


def _marked(title: str, pieces: Sequence[Piece], separator: str) -> Text:
    return Text.assemble((f"{title:<9}", "bold"), separator.join(piece.text for piece in pieces))


def _with_masks(original: str, masked: str) -> Text:
    text = Text("masks    ", style="bold")
    for old, new in zip(original, masked, strict=True):
        style = "" if old == new else " magenta" if new == BLOCK else " underline magenta"
        text.append(new.replace("\n", "⏎"), style=f"not bold{style}")
    return text


_FIRST = 4  # numbers of an embedding that are shown


def described(directory: str, *, num_texts: int, width: int) -> dict[str, Any]:
    """Return counts, columns and the first texts of a folder of embeddings.

    Raises UserError if it is incomplete.
    """
    from tokenfree.train.inference.folder import COUNTS, finished

    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise UserError(f"{directory}: not complete; run `tokenfree embed` again, which resumes it")
    with storage.open(manifest["shards"][0]["path"]) as file, pa.ipc.open_stream(file) as stream:
        schema, batch = stream.schema, stream.read_next_batch().slice(0, num_texts)
    return {
        "of": manifest["config"]["vectors"],
        "pooling": manifest["config"]["pooling"],
        "width": manifest["config"]["width"],
        "shards": len(manifest["shards"]),
        **{name: manifest[name] for name in COUNTS},
        "columns": {field.name: str(field.type) for field in schema},
        "sample": [_row(row, width) for row in batch.to_pylist()],
    }


def embedding_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    pooling = f" ({summary['pooling']})" if summary["pooling"] else ""
    yield f"{counted(summary['vectors'], 'vector')} of width {summary['width']:,}, of {summary['of']}{pooling}"
    yield ", ".join(
        counted(summary[name], name.removesuffix("s")) for name in ("texts", "characters", "shards")
    )
    for name, kind in summary["columns"].items():
        yield f"  {name:<12}{kind}"
    for row in summary["sample"]:
        yield ""
        yield one_line(f"{row['number']}  {row['text']}")
        first = " ".join(f"{value:.3f}" for value in row["first"])
        yield f"   {counted(row['vectors'], 'vector')}; the first has 2-norm {row['norm']:.3f}: {first} ..."


def _row(row: Mapping[str, Any], width: int) -> dict[str, Any]:
    vectors = np.array([row["vector"]] if "vector" in row else row["vectors"], np.float32)
    text = row["text"] if len(row["text"]) <= width else row["text"][:width] + "…"
    first_vector = vectors[0] if len(vectors) else np.zeros(0, np.float32)
    return {
        "number": row["number"],
        "text": text,
        "vectors": len(vectors),
        "norm": float(np.linalg.norm(first_vector)),
        "first": first_vector[:_FIRST].tolist(),
    }


def run(args: argparse.Namespace) -> None:
    names = Storage.at(args.directory).names()
    # On machines without torch, only data directories can be shown.
    if MANIFEST not in names:
        from tokenfree.train.inference.folder import is_vectors_folder

        if is_vectors_folder(names):
            return _vectors(args)
    manifest = load_manifest(args.directory)
    sample = windows(args.directory, manifest, num_windows=args.sample, width=args.width)
    if args.json:
        summary = {
            "counts": list(counts(manifest)),
            "pages": manifest.counters,
            "columns": columns(manifest),
            "windows": [dataclasses.asdict(window) for window in sample],
        }
        print(json.dumps(summary, ensure_ascii=False))
        return
    out = console()
    out.print(counts_table(manifest))
    out.print(pages_line(manifest))
    out.print(columns_table(manifest))
    for window in sample:
        show_window(out, window)
    out.print(f"\n{next_command('verify', args.directory)}")


def _vectors(args: argparse.Namespace) -> None:
    summary = described(args.directory, num_texts=args.sample, width=args.width)
    if args.json:
        print(json.dumps(summary, ensure_ascii=False))
    else:
        print("\n".join([*embedding_lines(summary), "", next_command("verify", args.directory)]))
