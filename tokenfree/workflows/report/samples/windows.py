"""Windows of a data directory with their words, subwords and masks marked."""

import itertools
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.workflows.report.samples.marking import text_cell
from tokenfree.workflows.report.sections.parts import Block, Table
from tokenfree.workflows.samples.windows import BLOCK, Piece, Window, on_one_line, windows

NUM_WINDOWS = 3
WIDTH = 240  # characters of each


def window_block(title: str, data: str) -> Block:
    """The first characters of some windows of the training split.

    Raises:
        UserError: `data` is no finished data directory.
        OSError, pyarrow.ArrowInvalid: a shard is absent or damaged.
    """
    manifest = load_manifest(data)
    if "text" not in manifest.config["columns"]:
        return Block(title, "None are shown: the shards have no column text.")
    text = "Words and subwords alternate in colour, every other one underlined. Masks are those of CANINE-S."
    shown = windows(data, manifest, num_windows=NUM_WINDOWS, width=WIDTH)
    return Block(title, text, tables=[_table(window) for window in shown])


def _table(window: Window) -> Table:
    labels = " ".join(window.labels.values())
    rest = "…" if window.characters > len(window.text) else ""
    rows = [["text", text_cell(window.text + rest)]]
    for name, pieces in (("words", window.words), ("subwords", window.subwords)):
        if pieces is not None:
            rows.append([name, text_cell(*_marked(window.text, pieces))])
    if window.masked is not None:
        rows.append(["masks", text_cell(*_with_masks(window.text, window.masked))])
    caption = f"Window {window.number:,}: {labels}, {window.characters:,} characters"
    return Table(caption, ["", "first characters"], rows)


def _marked(text: str, pieces: Sequence[Piece]) -> Iterator[str]:
    """The text with its pieces as elements."""
    before = 0
    for piece in pieces:
        yield text[before : piece.start]
        yield Markup("<i>{}</i>").format(on_one_line(piece.text))
        before = piece.end


def _with_masks(before: str, masked: str) -> Iterator[str]:
    """Runs of masked and of replaced characters as elements."""
    kinds = ("mark" if new == BLOCK else "u" if new != old else "" for old, new in zip(before, masked, strict=True))
    for kind, run in itertools.groupby(zip(kinds, masked, strict=True), key=lambda pair: pair[0]):
        part = "".join(new for _, new in run)
        yield Markup(f"<{kind}>{{}}</{kind}>").format(on_one_line(part)) if kind else part
