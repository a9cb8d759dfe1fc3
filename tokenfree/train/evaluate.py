"""Evaluate a pretraining run on held-out windows, and test whether its model uses context, by language and script.

Windows and masks are the same in every evaluation. The context-free baseline knows only how frequent each
answer is, and the position and length of a masked piece. Therefore white space and masks stay unchanged
without context.

B batch, C positions, N masked targets, or words of all examples
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.files import AnyPath
from tokenfree.preprocess.text.characters import SPACE, classes_of, scripts_of
from tokenfree.preprocess.text.specials import BYTE_MASK, BYTES, CHARACTERS, Specials, of_subwords
from tokenfree.train.batches.base import MASKED, Arrays, ragged_range
from tokenfree.train.batches.ngrams import target_ngrams
from tokenfree.train.batches.words import NUM_FRAME, frame_words
from tokenfree.train.checks import check
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import as_data, load_data_manifest, load_data_vocabulary
from tokenfree.train.data.validation import Baselines
from tokenfree.train.intervals import mean_over_windows
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import on_device
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.train.torch_state import default_settings, inference_precision

Change = Literal["blank", "other"]


@default_settings()
def evaluate(
    run: AnyPath,
    data: Data | AnyPath | Sequence[AnyPath],
    *,
    num_windows: int | None = None,
    step: int | None = None,
    device: str = "cpu",
    trust_code: bool = False,
) -> dict[str, Any]:
    """Evaluate a checkpoint of `run` on `data`; `checkpoint_of` says which checkpoint is the default.

    The result has `step` and the values of `Loop.validate`. Objectives that have context-free baselines add:
    `baseline_...`, the values of `Baselines.numbers`; `margin` and `probe`, both in nats per hidden target,
    of `context_probe`; `..._low` and `..._high`, the ends of 95% intervals if there are several windows;
    `languages` and `scripts`.

    `num_windows` is by default that of the run's recipe. With `trust_code`, code outside tokenfree that the
    run names is run.

    Raises UserError if the run cannot be evaluated on these data, JobError if the checkpoint is damaged.
    """
    config = read_config(run, trust_code=trust_code)
    if not config.manifest:  # see train/huggingface/folders.py
        raise UserError(
            f"{run} was {config.data}: an encoder without the head of an objective, so that there is no loss to "
            "evaluate; encode texts with it (tokenfree.load_encoder), or train on with `tokenfree pretrain --init-from`"
        )
    train = config.recipe.train
    used_train = dataclasses.replace(
        train,
        precision=inference_precision(train.precision),
        validation_windows=train.validation_windows if num_windows is None else num_windows,
    )
    recipe = dataclasses.replace(config.recipe, train=used_train)
    checkpoint, data = checkpoint_of(run, step), as_data(data)
    vocabulary = load_data_vocabulary(data)
    problems = check(recipe, load_data_manifest(data), vocabulary=vocabulary, trains_here=False)
    if checkpoint.state.vocabulary != (None if vocabulary is None else vocabulary.sha256):
        problems.append(
            f"{data} has another vocabulary than the data of {run}; preprocess it with that vocabulary/subwords.model "
            "as vocabulary.model"
        )
    if problems:
        raise SettingsError(problems=problems)
    loop = Loop(recipe, data, device=device)
    loop.load_model(checkpoint)
    result: dict[str, Any] = {**checkpoint.record(), **loop.validate()}
    baselines = loop.windows.baselines()
    if baselines is not None:
        result |= {f"baseline_{name}": value for name, value in baselines.numbers().items()}
        scores = score(loop)
        result |= context_probe(loop, baselines, scores)
        result |= by_language_and_script(loop, baselines, scores)
    return result


class TargetScores(NamedTuple):
    """Scores of N targets, in the order of the batches and row by row."""

    loss_N: np.ndarray  # float64, in nats
    correct_N: np.ndarray  # bool: the correct answer has the highest logit
    hidden_N: np.ndarray  # bool: the target is masked in the input
    sample_ids_N: np.ndarray  # int64: window of each target


@torch.no_grad()
def score(loop: Loop, change: Change | None = None) -> TargetScores:
    symbols, vocabulary = loop.recipe.model.embedder.symbols, loop.windows.vocabulary
    num_subwords = 0 if vocabulary is None else vocabulary.size
    parts: list[tuple[np.ndarray, ...]] = []
    with loop.evaluating():
        for arrays in loop.windows.held_out():
            if change is not None:
                arrays = without_context(arrays, symbols, num_subwords, change)
            batch, real = on_device(arrays, loop.device), arrays["target_mask"]
            logits_NV = loop.model.head.target_logits(loop.encoder, batch).float()
            gold_N = batch["target_ids"][batch["target_mask"]]
            loss_N = torch.nn.functional.cross_entropy(logits_NV, gold_N, reduction="none").double()
            parts.append(
                (
                    loss_N.cpu().numpy(),
                    (logits_NV.argmax(-1) == gold_N).cpu().numpy(),
                    arrays["target_kinds"][real] == MASKED,
                    np.broadcast_to(arrays["sample_ids"][:, None], real.shape)[real],
                )
            )
    return TargetScores(*map(np.concatenate, zip(*parts, strict=True)))


def context_probe(loop: Loop, baselines: Baselines, scores: TargetScores) -> dict[str, float]:
    """Return how much lower the model's loss on hidden targets is than without context, in nats.

    `margin` compares it with the better of the context-free baselines, `margin_neighbours` with the counts of
    neighbours. `probe_blank` compares it with the same model when
    all text except white space is hidden, `probe_other` when the target is surrounded by the text of another
    window. `probe` is the smaller of these two. All differences are paired target by target.
    """
    blank, other = score(loop, "blank"), score(loop, "other")
    hidden = scores.hidden_N
    against = {
        "margin": baselines.best_masked_only_N,
        "probe_blank": blank.loss_N,
        "probe_other": other.loss_N,
    }
    if baselines.neighbours_N is not None:
        against["margin_neighbours"] = baselines.neighbours_N
    result = {}
    for name, loss_N in against.items():
        interval = mean_over_windows((loss_N - scores.loss_N)[hidden], scores.sample_ids_N[hidden])
        result[name] = interval.mean
        if interval.half is not None:
            result |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {**result, "probe": min(result["probe_blank"], result["probe_other"])}


def by_language_and_script(
    loop: Loop, baselines: Baselines, scores: TargetScores
) -> dict[str, list[dict[str, Any]]]:
    """Return scores of the hidden validation targets by the language of their window and by their own script.

    `languages` and `scripts` have one entry for each `name`, in descending order of `targets`, their number.
    `without_context` is the mean loss of the better of the baselines. A subword's script is that of its first
    letter, and "" for digits, punctuation and symbols.
    """
    hidden = scores.hidden_N
    values = {
        "loss": scores.loss_N[hidden],
        "accuracy": scores.correct_N[hidden],
        "without_context": baselines.best_masked_only_N[hidden],
    }
    symbols = loop.recipe.objective.symbols(loop.windows.vocabulary)
    assert symbols is not None, "there are baselines"
    targets = [symbols.codepoints(arrays)[arrays["target_mask"]] for arrays in loop.windows.held_out()]
    reader = loop.windows.validation
    languages = np.array([shard.language for shard in reader.shards])
    names = {
        "languages": languages[reader.shards_of(scores.sample_ids_N)],
        "scripts": scripts_of(np.concatenate(targets)),
    }
    return {kind: breakdown(name_N[hidden], values) for kind, name_N in names.items()}


def breakdown(names_N: np.ndarray, values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the number of targets with each name and the means of `values` over them, most targets first."""
    unique_names, of_N, counts = np.unique(names_N, return_inverse=True, return_counts=True)
    sums = {
        what: np.bincount(of_N, weights=value_N, minlength=len(unique_names))
        for what, value_N in values.items()
    }
    return [
        {
            "name": str(unique_names[index]),
            "targets": int(counts[index]),
            **{what: float(totals[index] / counts[index]) for what, totals in sums.items()},
        }
        for index in np.argsort(-counts, kind="stable")
    ]


class _Marks(NamedTuple):
    """Positions in an input of symbols, bool [B, C]: its text, its masks, and the white space that always stays."""

    text: np.ndarray
    hidden: np.ndarray
    white: np.ndarray
    mask_id: int


def without_context(arrays: Arrays, symbols: str, num_subwords: int, change: Change) -> Arrays:
    """Return the batch `arrays` with another context. All arrays except the input stay the same.

    The change "blank" masks all text except white space. "other" takes the text of the example half a batch
    away, position by position, repeated if it is shorter. An example that is alone in its batch gets a blank
    context. `num_subwords` is the size of the vocabulary of a model of subwords.
    """
    if len(arrays["codepoints"]) == 1:
        change = "blank"
    if "unit_ends" in arrays:
        return {**arrays, **_words(arrays, change)}
    codepoints = arrays["codepoints"]
    specials = {"characters": CHARACTERS, "bytes": BYTES}.get(symbols) or of_subwords(num_subwords)
    marks = _marks_of(arrays, symbols, specials)
    changed = (
        np.where(marks.white, codepoints, marks.mask_id)
        if change == "blank"
        else _other_text(codepoints, marks)
    )
    arrays = {**arrays, "codepoints": np.where(marks.text & ~marks.hidden, changed, codepoints)}
    return arrays | ({"target_ngrams": target_ngrams(arrays)} if "target_ngrams" in arrays else {})


def _marks_of(arrays: Arrays, symbols: str, specials: Specials) -> _Marks:
    codepoints = arrays["codepoints"]
    text = arrays["mask"] & (codepoints != specials.cls) & (codepoints != specials.sep)
    white = np.zeros_like(text)
    if symbols != "subwords":
        white = text & (classes_of(codepoints.astype(np.uint32)) == SPACE)
    if symbols == "bytes":
        white &= codepoints < 0x80
    return _Marks(text, codepoints == specials.mask, white, specials.mask)


def _other_text(codepoints_BC: np.ndarray, marks: _Marks) -> np.ndarray:
    """Return the text of another example at the text positions of each example, int64 [B, C].

    Masks of that other example stay masks. Next to an example's own masks, white space stays, and other
    symbols are replaced by visible symbols only. Therefore the length of each masked piece, and whether it
    begins a word, stay the same.
    """
    counts = marks.text.sum(axis=1)
    partner = np.roll(np.arange(len(codepoints_BC)), len(codepoints_BC) // 2)
    place_BC = np.cumsum(marks.text, axis=1) - 1
    # Text first, because pairs have a separator inside.
    order = np.argsort(~marks.text, axis=1, kind="stable")
    texts_BC, count_B = (
        np.take_along_axis(codepoints_BC, order, axis=1)[partner],
        np.maximum(counts[partner], 1),
    )
    taken_BC = np.take_along_axis(texts_BC, np.maximum(place_BC, 0) % count_B[:, None], axis=1)

    letters_BC = np.take_along_axis(marks.text & ~marks.white & ~marks.hidden, order, axis=1)[partner]
    letter_B = texts_BC[np.arange(len(texts_BC)), letters_BC.argmax(axis=1)]
    beside_BC = np.zeros_like(marks.hidden)
    beside_BC[:, 1:] |= marks.hidden[:, :-1]
    beside_BC[:, :-1] |= marks.hidden[:, 1:]
    white_BC = (
        classes_of(np.minimum(taken_BC, 0x10FFFF).astype(np.uint32)) == SPACE if marks.white.any() else False
    )
    no_letter_BC = beside_BC & ~marks.white & (white_BC | (taken_BC == marks.mask_id))
    taken_BC = np.where(no_letter_BC, letter_B[:, None], taken_BC)
    return np.where(beside_BC & marks.white, codepoints_BC, taken_BC)


def _words(arrays: Arrays, change: Change) -> Arrays:
    ends_BU, length = arrays["unit_ends"], arrays["codepoints"].shape[1]
    num_units = ends_BU.shape[1]
    starts_BU = np.pad(ends_BU[:, :-1], ((0, 0), (1, 0)))
    counts_B = (ends_BU > starts_BU).sum(axis=1) - NUM_FRAME
    rows_N = np.repeat(np.arange(len(counts_B)), counts_B)
    words_N = ragged_range(np.ones_like(counts_B), counts_B)
    text = np.append(arrays["codepoints"].astype(np.uint8).reshape(-1), np.uint8(BYTE_MASK))
    mask_at, word_starts_N = len(text) - 1, starts_BU[rows_N, words_N]
    starts_N, sizes_N = np.full(len(rows_N), mask_at), np.ones(len(rows_N), dtype=np.int64)
    if change == "other":
        partner_N = np.roll(np.arange(len(counts_B)), len(counts_B) // 2)[rows_N]
        places_N = 1 + (words_N - 1) % np.maximum(counts_B[partner_N], 1)
        hidden_N = arrays["codepoints"][rows_N, word_starts_N] == BYTE_MASK
        sizes = np.where(hidden_N, 1, (ends_BU - starts_BU)[partner_N, places_N])
        # Bytes of a row up to and including each word, plus one mask byte per later word. Words that exceed
        # the length are masked.
        offsets_N = np.cumsum(sizes) - sizes
        first_N = np.repeat(np.cumsum(counts_B) - counts_B, counts_B)
        needed_N = offsets_N - offsets_N[first_N] + sizes + counts_B[rows_N] - words_N
        taken_N = ~hidden_N & (needed_N <= length - NUM_FRAME)
        starts_N = np.where(taken_N, partner_N * length + starts_BU[partner_N, places_N], mask_at)
        sizes_N = np.where(taken_N, sizes, 1)
    return frame_words(text, starts_N, sizes_N, counts_B, length, num_units)._asdict()
