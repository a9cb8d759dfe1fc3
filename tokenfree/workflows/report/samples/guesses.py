"""A table of hidden pieces with the best guesses of a model."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from tokenfree.core import own_code
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.inference.predictor import predictor_of
from tokenfree.train.runs.checkpoints import Checkpoint
from tokenfree.workflows.report.samples.marking import bdi, text_cell
from tokenfree.workflows.report.sections.parts import Block, Table
from tokenfree.workflows.samples.hidden_pieces import TOP, HiddenPiece, hidden_pieces

AROUND = 60  # characters shown before a hidden piece, and after it


def guess_block(title: str, checkpoint: Checkpoint, recipe: Mapping[str, Any], data: Data) -> Block:
    """The guesses of a checkpoint, which was trained by `recipe`, on held-out windows of `data`.

    Raises:
        UntrustedCode: the recipe names code from outside tokenfree; nothing of it was run.
        UserError: the data do not go with it.
        JobError: a shard cannot be read.
    """
    with own_code.trusting((), title):
        settings = build(PretrainRecipe, recipe, source=title)
    predictor = predictor_of(checkpoint, settings, data)
    found = hidden_pieces(predictor, data)
    first = sum(piece.right == 0 for piece in found)
    among = sum(piece.right is not None for piece in found)
    text = " ".join(f"{message}." for message in checkpoint.damaged)
    text += f" Step {checkpoint.step:,}: {first} of {len(found)} right at first, {among} among the {TOP} best (✓)."
    if any(_is_of_class(piece) for piece in found):
        text += " A character stands for all of its class."
    header = ["held-out text", "hidden", *map(str, range(1, TOP + 1))]
    rows = [[_around(piece), bdi(piece.text), *_guesses(piece)] for piece in found]
    return Block(title, text, tables=[Table(f"Hidden pieces: {title}", header, rows)])


def _around(piece: HiddenPiece) -> Markup:
    before, after = piece.before, piece.after
    shown = before if len(before) <= AROUND else "…" + before[-AROUND:]
    return text_cell(shown, Markup("<mark>█</mark>"), after if len(after) <= AROUND else after[:AROUND] + "…")


def _guesses(piece: HiddenPiece) -> list[str]:
    cells = [
        Markup("<b>✓ {} {}</b>" if rank == piece.right else "{} {}").format(bdi(guess.text), f"{guess.probability:.1%}")
        for rank, guess in enumerate(piece.guesses)
    ]
    return cells + ["–"] * (TOP - len(cells))


def _is_of_class(piece: HiddenPiece) -> bool:
    """Whether the right guess is spelled by another character of the same class."""
    return piece.right is not None and piece.guesses[piece.right].text.lstrip("▁") != piece.text
