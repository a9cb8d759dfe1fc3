"""Evaluate a trained model for the report: its use of context, and predictions of hidden words."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from tokenfree.core import own_code
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.settings import build
from tokenfree.train.data.mixture import Data, given_or_parsed, load_data_manifest, paths_of
from tokenfree.workflows.report.load import RunRecord
from tokenfree.workflows.report.parts import Table, bdi

if TYPE_CHECKING:  # imports torch
    from tokenfree.train.inference.guesses import Guess
    from tokenfree.train.inference.predictor import Predictor

EXAMPLES, TOP = 5, 3  # predictions on the page, and the best answers of each
AROUND = 60  # characters shown before and after the hidden word
_MOST_READ = 2**16  # characters to evaluate a run on: seconds for a small model, minutes for a large one


class Predictions(NamedTuple):
    """Results of the evaluation and the predictions of a model."""

    context: Mapping[str, float] = {}  # `margin` with its ends and `probe` of `train.evaluate.evaluate`, if known
    examples: Sequence[Table] = ()  # at most one table of predictions
    problem: str = ""  # why there are no predictions, or which checkpoints are damaged


def _data_of(fingerprint: str, recorded: Data | None, known: Mapping[str, Data]) -> Data | None:
    """Return the training data of a run: `known` by fingerprint, or at the recorded paths if unchanged there."""
    if fingerprint in known:
        return known[fingerprint]
    if recorded is None or not all((Path(path) / "manifest.json").is_file() for path in paths_of(recorded)):
        return None
    try:
        return recorded if load_data_manifest(recorded).fingerprint == fingerprint else None
    except UserError:
        return None


def ask(
    run: RunRecord, known: Mapping[str, Data], *, context: Mapping[str, float] | None, step: int | None
) -> Predictions:
    """Evaluate the model of a pretraining run, unless its `context` is known, and predict words of held-out windows.

    The result is empty for imported runs and for runs without checkpoints. `known` has data directories by the
    fingerprint of their manifest, and `context` results of `evaluate`. Raises UserError if there is no checkpoint of
    `step`, and JobError if it is damaged.
    """
    config, folder = run.config, str(run.path)
    if not config.get("manifest") or "recipe" not in config or not any((run.path / "checkpoints").glob("step_*")):
        return Predictions()
    recorded = given_or_parsed(config["data"]) if "data" in config else None
    data = _data_of(config["manifest"], recorded, known)
    if data is None:
        where = f"its data are not in {recorded}. Give their directory to tokenfree report too"
        return Predictions(problem=f"No predictions: {where}.")
    from tokenfree.train.config import PretrainRecipe  # these import torch
    from tokenfree.train.evaluate import evaluate
    from tokenfree.train.inference.predictor import predictor_of
    from tokenfree.train.runs.run import checkpoint_of

    checkpoint = checkpoint_of(run.path, step)
    try:
        with own_code.trusting(False, folder):
            recipe = build(PretrainRecipe, config["recipe"], source=folder)
        if context is None:
            num_windows = min(recipe.train.validation_windows, max(16, _MOST_READ // (recipe.train.length or 1)))
            context = evaluate(folder, data, num_windows=num_windows, step=checkpoint.step)
        predictor = predictor_of(checkpoint, recipe, data)
        found = [_example(predictor, *each) for each in _windows(predictor, data)]
    except UntrustedCode as error:
        reason = f"a report runs no code from outside tokenfree, and this run names {', '.join(error.names)}"
        return Predictions(problem=f"No predictions: {reason}.")
    except (UserError, JobError, OSError) as error:
        return Predictions(context or {}, problem=f"No predictions: {error}")
    if not found:
        return Predictions(context, problem="No predictions: no held-out window has a word that is one piece.")
    right = sum("<b>" in row[2] for row in found)
    caption = f"Step {checkpoint.step:,}: {right} of {len(found)} example predictions right at first (✓)"
    table = Table(caption, ["text", "hidden", "first", "second", "third"], found)
    return Predictions(context, [table], " ".join(f"{message}." for message in checkpoint.damaged))


def _windows(predictor: "Predictor", data: Data) -> Iterator[tuple[str, str, str]]:
    """Yield evenly spaced held-out windows, split at the middle one of those words that are single pieces."""
    from tokenfree.preprocess.text.words import word_spans
    from tokenfree.train.data.shards import ShardReader
    from tokenfree.train.inference.guesses import LONGEST

    reader = ShardReader(data, "validation")
    _, shards, rows = reader.spread(4 * EXAMPLES)
    pieces = None if predictor.vocabulary is None else set(predictor.vocabulary.pieces())
    left = EXAMPLES
    for encoded in map(np.ndarray.tobytes, reader.rows(["text"], shards, rows)["text"]):
        spans = zip(*(edges.tolist() for edges in word_spans(encoded.decode())), strict=True)
        words = [(start, end, encoded[start:end].decode()) for start, end in spans]
        known = [
            (start, end, word)
            for start, end, word in words
            if word.isalpha() and 1 < len(word) <= LONGEST and (pieces is None or f"▁{word}" in pieces)
        ]
        if known and left:
            left -= 1
            start, end, word = known[len(known) // 2]
            yield encoded[:start].decode(), word, encoded[end:].decode()


def _example(predictor: "Predictor", before: str, answer: str, after: str) -> list[str]:
    """Return the table row of an example: text, hidden word and best predictions, with correct ones marked."""
    buckets = getattr(predictor.recipe.objective, "buckets", 0x110000)  # characters of one bucket are the same to it

    def classes(text: str) -> list[int]:
        return [ord(character) % buckets for character in text.lstrip("▁")]

    cells = []
    for text, probability in _predicted(predictor, before, answer, after):
        form = "<b>✓ {} {}</b>" if classes(text) == classes(answer) else "{} {}"
        cells.append(Markup(form).format(bdi(text), f"{probability:.0%}"))
    shown = before if len(before) <= AROUND else "…" + before[-AROUND:]
    rest = after if len(after) <= AROUND else after[:AROUND] + "…"
    line = Markup('<span class="sample" dir="auto">{}<mark>█</mark>{}</span>')
    sample = line.format(shown.replace("\n", "⏎ "), rest.replace("\n", "⏎ "))
    return [sample, bdi(answer), *cells, *["–"] * (TOP - len(cells))]


def _predicted(predictor: "Predictor", before: str, answer: str, after: str) -> "Sequence[Guess]":
    """Return the best predictions. The context is halved until it fits into the model."""
    from tokenfree.train.inference.guesses import MaskedText

    size = None if predictor.recipe.objective.name in ("masked_subwords", "byte2word") else len(answer)
    reach = max(len(before), len(after))
    while True:
        parts = before[max(len(before) - reach, 0) :], after[:reach]
        try:
            return predictor(MaskedText(parts, (size,)), TOP)[0]
        except UserError:
            if not reach:
                raise
            reach //= 2
