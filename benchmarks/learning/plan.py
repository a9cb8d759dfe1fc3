"""What is trained: models that are to be shown to read, then the comparisons that the documents make.

Six models are shown, and one of them by its fast recipe besides.
A row is one setting; every row has three seeds. All runs use one thread, the fixed held-out windows of `COMMON` and a
rate that rises over 5% of the steps and falls to 0. Rows of one family share data, batch, length and steps, so that
they have the same budget of tokens; a row states only what it changes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SEEDS = (0, 1, 2)
MODELS, COMPARISONS = "models", "comparisons"
Options = tuple[tuple[str, str], ...]  # dotted keys of the recipe and values, as on the command line

COMMON: Options = (
    ("train.threads", "1"),
    ("train.validation_windows", "256"),
    ("train.checkpoint_every_steps", "500"),
    ("train.warmup", "0.05"),
)


@dataclass(frozen=True)
class Row:
    """One setting: a recipe, what is laid over it, and how long it is trained.

    Attributes:
        name: of the row; `NAME-SEED` is the folder of a run.
        label: what tables call it.
        recipe: the name of a recipe that comes with tokenfree.
        data: the data directory, by its key in `benchmarks.learning.data.DIRECTORIES`.
        steps: optimizer steps.
        options: over the recipe and `COMMON`.
        stage: `MODELS` or `COMPARISONS`.
    """

    name: str
    label: str
    recipe: str
    data: str
    steps: int
    options: Options = ()
    stage: str = COMPARISONS

    @property
    def overrides(self) -> dict[str, str]:
        """All keys that are laid over the recipe, but the seed."""
        every = "250" if self.stage == MODELS else "100"
        return {
            **dict(COMMON),
            "train.validate_every_steps": every,
            "train.steps": str(self.steps),
            **dict(self.options),
        }


@dataclass(frozen=True)
class Entry:
    """One run of the queue: a row and a seed."""

    row: Row
    seed: int

    @property
    def name(self) -> str:
        """The folder of the run, and the key of its line of results."""
        return f"{self.row.name}-{self.seed}"

    @property
    def work(self) -> str:
        """What there is to do, in words."""
        return f"{self.row.steps:,} steps of {self.row.recipe}"

    def arguments(self, data: Path | str, runs: Path | str) -> list[str]:
        """The arguments of `tokenfree` that train it, with the folder of the data directories and that of the runs."""
        options = {**self.row.overrides, "train.seed": str(self.seed)}
        given = [part for key, value in options.items() for part in (f"--{key}", value)]
        paths = ["--data", f"{data}/{self.row.data}", "--output", f"{runs}/{self.name}"]
        return ["pretrain", self.row.recipe, *paths, *given]

    def command(self, data: Path | str = "data", runs: Path | str = "runs") -> str:
        """The command that trains it, as one would type it."""
        return shlex.join(["tokenfree", *self.arguments(data, runs)])


def queue(rows: Iterable[Row]) -> list[Entry]:
    """All runs in their order: the models before the comparisons, and in each stage seed 0 of all rows before seed 1.

    So a queue that is stopped early has the same number of seeds of each row, but for one.
    """
    listed = list(rows)
    return [
        Entry(row, seed) for stage in (MODELS, COMPARISONS) for seed in SEEDS for row in listed if row.stage == stage
    ]


RATE = "train.learning_rate"
# Of every row of a family, so that all of them read the same text.
CHARACTER_STEPS = 800
SUBWORD_STEPS = 2000
WORD_STEPS = 3000
PSEUDO_WORD_STEPS = 2000  # fewer, because a step with convolutions takes five times as long

DEEP: Options = (("model.width", "128"), ("model.trunk.layers", "4"))
SHORT: Options = (*DEEP, ("train.length", "80"))
MORE_TARGETS: Options = (("objective.mask_fraction", "0.3"), ("objective.max_predictions", "40"))
SCALED: Options = (("model.initialisation", "scaled"),)
# CANINE-C hides whole words: here runs of two characters of a text that has no spaces.
AUTOREGRESSIVE: Options = ((RATE, "0.0015"), *SCALED, ("objective.max_word", "2"))

SHOWN = (
    Row("canine-s", "CANINE-S", "canine-s-tiny", "en-short", 3500, ((RATE, "0.0015"),), MODELS),
    Row("canine-c", "CANINE-C", "canine-c-tiny", "ja-short", 1500, AUTOREGRESSIVE, MODELS),
    Row("bert", "subword BERT", "bert-tiny", "en-short", 6000, SHORT, MODELS),
    Row("bert-fast", "subword BERT, fast recipe", "bert-fast-tiny", "en-short", 3000, SHORT, MODELS),
    Row(
        "diet_rel",
        "DIET-REL",
        "bert-diet_rel-tiny",
        "en-short",
        5000,
        (*SHORT, ("model.trunk.positions.max_units", "80")),
        MODELS,
    ),
    Row("byte2word", "Byte2Word", "byte2word-tiny", "en", 5000, ((RATE, "0.001"), *DEEP, *SCALED), MODELS),
    Row("ms", "multi-scale Transformer", "ms-transformer-tiny", "en-short", 3500, ((RATE, "0.0015"),), MODELS),
)


def _characters(name: str, label: str, recipe: str, *options: tuple[str, str]) -> Row:
    """A model that reads characters."""
    return Row(name, label, recipe, "en-short", CHARACTER_STEPS, ((RATE, "0.0015"), *options))


def _autoregressive(name: str, label: str, recipe: str) -> Row:
    """A CANINE-C as the one that is shown to read."""
    return Row(name, label, recipe, "ja-short", CHARACTER_STEPS, AUTOREGRESSIVE)


def _subwords(name: str, label: str, recipe: str, *options: tuple[str, str]) -> Row:
    """A subword BERT of the size of those that are shown to read, with twice as many targets."""
    return Row(name, label, recipe, "en-short", SUBWORD_STEPS, (*SHORT, *MORE_TARGETS, *options))


def _words(name: str, label: str, recipe: str) -> Row:
    """A Byte2Word as the one that is shown to read."""
    return Row(name, label, recipe, "en", WORD_STEPS, ((RATE, "0.001"), *DEEP, *SCALED))


def _pseudo_words(name: str, label: str, recipe: str) -> Row:
    """The same over pieces of words."""
    return Row(name, label, recipe, "en", PSEUDO_WORD_STEPS, ((RATE, "0.002"),))


def _compared() -> Iterator[Row]:
    """The rows of the comparisons, family by family."""
    yield _characters("s-base", "CANINE-S", "canine-s-tiny")
    yield _characters("s-mean", "mean of four characters", "canine-s-mean-pooling-tiny")
    yield _characters("s-attention", "attention to four characters", "canine-s-attention-pooling-tiny")
    yield _characters("s-no-local-layer", "without the local layer", "canine-s-no-local-layer-tiny")
    yield _characters("s-rate-5", "5 characters a unit", "canine-s-rate-5-tiny")
    yield _characters("s-rate-6", "6 characters a unit", "canine-s-rate-6-tiny")
    yield _characters("s-attend-down", "final layer attends to the units", "canine-s-attend-down-tiny")
    yield _characters("s-half-buckets", "half the buckets", "canine-s-half-buckets-tiny")
    yield _characters("s-vocabulary", "character vocabulary", "canine-s-character-vocabulary-tiny")
    yield _characters("s-half-width", "characters half as wide", "canine-s-half-width-tiny")
    yield _characters("s-quarter-width", "characters a quarter as wide", "canine-s-quarter-width-tiny")
    yield _characters("s-longformer", "sliding windows in the deep stack", "canine-s-longformer-tiny")
    yield _characters("s-char-bert", "character BERT that predicts subwords", "char-bert-subwords-tiny")
    alpha = "model.trunk.attention.alpha"
    yield _characters("ms-base", "multi-scale, alpha 0.5", "ms-transformer-tiny")
    yield _characters("ms-standard", "standard Transformer", "ms-standard-tiny")
    yield _characters("ms-alpha-0", "multi-scale, alpha 0", "ms-transformer-tiny", (alpha, "0"))
    yield _characters("ms-alpha-minus-0.5", "multi-scale, alpha -0.5", "ms-transformer-tiny", (alpha, "-0.5"))
    yield _characters("ms-alpha-minus-1", "multi-scale, alpha -1", "ms-transformer-tiny", (alpha, "-1"))
    yield _characters("ms-single-3", "one scale, 3", "ms-single-3-tiny")
    yield _characters("ms-single-n16", "one scale, N/16", "ms-single-n16-tiny")
    yield _characters("ms-single-n4", "one scale, N/4", "ms-single-n4-tiny")
    sharing = "model.trunk.positions.sharing"
    yield _subwords("diet-input", "absolute at the input", "bert-learned-tiny")
    yield _subwords("diet-rel", "DIET-REL", "bert-diet_rel-tiny")
    yield _subwords("diet-abs-shared", "DIET-ABS, layers share", "bert-diet_abs-tiny")
    yield _subwords("diet-rel-shared", "DIET-REL, layers share", "bert-diet_rel-tiny", (sharing, "layer_wise"))
    yield _subwords("diet-rel-heads", "DIET-REL, heads share", "bert-diet_rel-tiny", (sharing, "head_wise"))
    yield _subwords("diet-abs", "DIET-ABS, nothing shared", "bert-diet_abs-tiny", (sharing, "none"))
    yield _words("b2w-48", "bytes 48 wide", "byte2word-tiny")
    yield _words("b2w-24", "bytes 24 wide", "byte2word-width-96-tiny")
    yield _words("b2w-128", "bytes 128 wide", "byte2word-width-512-tiny")
    yield _words("b2w-256", "bytes 256 wide", "byte2word-width-1024-tiny")
    yield _pseudo_words("b2w-pseudo", "pseudo-words, attention pooling", "byte2word-subwords-tiny")
    yield _pseudo_words("b2w-cnn", "pseudo-words, convolutions", "byte2word-cnn-tiny")
    yield _autoregressive("c-base", "CANINE-C", "canine-c-tiny")
    yield _autoregressive("c-ngrams", "with n-grams", "canine-c-ngrams-tiny")
    yield _autoregressive("c-no-concatenation", "without the concatenation", "canine-c-no-concatenation-tiny")
    yield _autoregressive("c-residual-initial", "residual from the characters", "canine-c-residual-initial-tiny")
    yield _autoregressive("c-residual-units", "residuals from both", "canine-c-residual-units-tiny")


ROWS = (*SHOWN, *_compared())
