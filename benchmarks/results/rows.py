"""The rows of the queue, with the most valuable stage first.

Settings that rows share are at the top, defined once. A row is a set of examples or a corpus, a recipe with
options, the pretraining row that it starts from, and steps. Each has three seeds. A row that starts from a
pretraining row uses its run with the same seed. A row with `rates` trains at the rate that is best on a
development part with seed 0: its own if it ran at several rates, otherwise that of its family's `leader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.results.data import NAMES, PAIRS, SETS, TEXTS

PRETRAIN, FINETUNE, PROBE, BASELINE, LINEAR = "pretrain", "finetune", "probe", "baseline", "linear"
PRETRAINED, UNTRAINED = "fine-tuned", "same model, untrained"
SCRATCH = "default recipe, from scratch"
LONGER = "fine-tuned, pretrained five times as long"
LARGER = "small model, pretrained on a GPU, fine-tuned"
Options = Mapping[str, str]

# --- Chosen settings: change them only here. ---
# All fine-tuning starts from this. It has no positions at the input, because fine-tuning reads longer texts.
PRETRAINING = (
    "canine-fast-tiny",
    {"model.embedder.buckets": "4096", "model.embedder.positions": "none", "train.steps": "6000"},
)
# One run on an H100 for four minutes, on all text. Its steps are those that fit the time.
LARGER_PRETRAINING = (
    "canine-fast-small",
    {
        "model.embedder.positions": "none",
        "train.global_batch": "256",
        "train.learning_rate": "0.0015",
        "train.steps": "4839",
        "train.precision": "bfloat16",
        "train.device": "cuda",
    },
)
LARGER_RATES = {NAMES: ("0.0005", "0.001", "0.002"), TEXTS: ("0.0001", "0.0003", "0.001")}
# The head and schedule before linear paths, so that rows of that time can be run again.
ENCODER_ALONE: Options = {
    "model.neighbours.name": "none",
    "train.ema_decay": "null",
    "train.patience": "null",
    "task.dropout": "0.1",
}
FIRST_CHARACTERS: Options = {
    **ENCODER_ALONE,
    "task.targets": "first",
    "task.decoder": "independent",
    "task.miss_cost": "0",
}
# By kind of set: recipe, options, rates of the sweep (the lowest first), the set that the sweep uses.
TUNING: Mapping[str, tuple[str, Options, tuple[str, ...], str]] = {
    NAMES: ("ner", {"train.length": "240", **FIRST_CHARACTERS}, ("0.001", "0.002", "0.004"), "swa"),
    TEXTS: (
        "classification",
        {"train.length": "240", "task.stride": "1", "train.embedder_rate": "10", **ENCODER_ALONE},
        ("0.0001", "0.0003", "0.001"),
        "sst2",
    ),
    PAIRS: ("pairs", {"train.length": "512"}, ("0.0001", "0.0003", "0.001"), "snli"),
}
# Rates beyond those of the first sweep, where its best lies at an end. They run with seed 0, and count as soon as they
# have run.
FURTHER_RATES: Mapping[str, tuple[str, ...]] = {
    "swa-tuned": ("0.008",),
    "swa-untrained": ("0.008",),
    "ewt-tuned": ("0.001",),
    "ewt-untrained": ("0.0005", "0.002"),
    "germeval-tuned": ("0.001", "0.008"),
    "sst2-tuned": ("0.003",),
    "snli-tuned": ("0.003",),
}
STEPS = {"sst2": 600, "sst5": 600, "mtl": 900, "wisesight": 400, "snli": 500, "xnli-ko": 300}
NAMES_STEPS = 300
ENGLISH_TEXTS = ("sst2", "sst5", "mtl")  # also fine-tuned after the longer pretraining
# The recipe that a claim changes: CANINE-S over single characters, trained fast. With the papers' own
# settings, models of this size do not use context within minutes, so nothing could be compared.
CLAIMS_RECIPE = "canine-fast-tiny"
CLAIMS_BASE: Options = {  # explicit, so that they apply to any part a claim changes to
    "model.downsampler.layers": "0",
    "model.downsampler.block": "120",
    "model.upsampler.kernel": "16",
    "train.steps": "1000",
}
SINGLE_CHARACTERS: Options = {
    "model.embedder.name": "codepoint_hash",
    "model.embedder.hashes": "4",
    "model.embedder.buckets": "4096",
    "model.embedder.max_characters": "2048",
}
# --- End of the chosen settings. ---

FIRST = ("swa", "ewt", "germeval", "amh", "sst2", "sst5", "mtl", "hau", "ibo", "kin", "wol", "wnut")
LATER = tuple(name for name in SETS if name not in FIRST)


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        name: Key. A run is `NAME-SEED`, or `NAME@RATE-SEED` if a sweep decides on the rate.
        kind: `PRETRAIN`, `FINETUNE`, `PROBE`, `BASELINE` or `LINEAR`.
        label: Name in tables.
        set: Set of examples, if it reads files.
        data: Pretraining corpus.
        recipe: Recipe of tokenfree.
        options: Options merged over the recipe.
        begins_with: Pretraining row to start from.
        rates: Rates of the sweep of its family.
        leader: Row that the sweep uses.
        further_rates: Rates that extend what this row has tried.
        seeds: Number of seeds.
    """

    name: str
    kind: str
    label: str
    set: str | None = None
    data: str = "text"
    recipe: str = ""
    options: Options = field(default_factory=dict)
    begins_with: str | None = None
    rates: tuple[str, ...] = ()
    leader: str = ""
    seeds: int = 3
    further_rates: tuple[str, ...] = ()


def _pretrained() -> Iterator[Row]:
    """Yield the pretraining row, and one of its initial weights: a step at a rate too small to change anything."""
    recipe, options = PRETRAINING
    nothing = {**options, "train.steps": "1", "train.learning_rate": "1e-12"}
    yield Row("text", PRETRAIN, "n-gram CANINE", recipe=recipe, options=options)
    yield Row("text-untrained", PRETRAIN, "n-gram CANINE, untrained", recipe=recipe, options=nothing)
    longer = {**options, "train.steps": str(5 * int(options["train.steps"]))}
    yield Row(
        "text-long", PRETRAIN, "n-gram CANINE, five times as long", recipe=recipe, options=longer, seeds=1
    )
    recipe, options = LARGER_PRETRAINING
    yield Row("all-gpu", PRETRAIN, "small n-gram CANINE, on a GPU", None, "all", recipe, options, seeds=1)


def _of_set(name: str) -> Iterator[Row]:
    kind = SETS[name].kind
    recipe, options, rates, leader = TUNING[kind]
    steps = STEPS.get(name, NAMES_STEPS)
    given = {**options, "train.steps": str(steps), "train.validate_every_steps": str(steps // 5)}
    given["train.checkpoint_every_steps"] = given["train.validate_every_steps"]
    for end, label, begins_with in (
        ("tuned", PRETRAINED, "text"),
        ("untrained", UNTRAINED, "text-untrained"),
    ):
        family = (rates, f"{leader}-{end}")
        further = FURTHER_RATES.get(f"{name}-{end}", ())
        yield Row(
            f"{name}-{end}",
            FINETUNE,
            label,
            name,
            "",
            recipe,
            given,
            begins_with,
            *family,
            further_rates=further,
        )
    if name in ENGLISH_TEXTS:
        family = (rates, f"{leader}-tuned")
        yield Row(f"{name}-long", FINETUNE, LONGER, name, "", recipe, given, "text-long", *family, seeds=1)
    if name in FIRST:
        family = (LARGER_RATES[kind], f"{leader}-gpu")
        # Without it, the loss on SST-2's development part rises.
        given = {**given, "model.trunk.dropout": "0.1"}
        yield Row(f"{name}-gpu", FINETUNE, LARGER, name, "", recipe, given, "all-gpu", *family, seeds=1)
    yield Row(f"{name}-probe", PROBE, "linear probe", name, begins_with="text")


def _baselines() -> Iterator[Row]:
    for name in (*FIRST, *LATER):
        yield Row(f"{name}-baseline", BASELINE, "baseline", name, seeds=1)


def _scratch() -> Iterator[Row]:
    for name in (*FIRST, *LATER):
        if SETS[name].kind != PAIRS:
            recipe = TUNING[SETS[name].kind][0]
            yield Row(f"{name}-linear", LINEAR, "linear model", name, seeds=1)
            yield Row(f"{name}-scratch", FINETUNE, SCRATCH, name, "", recipe)


MULTI_SCALE = {
    "model.trunk.layer.name": "multi_scale",
    "model.trunk.attention.name": "multi_scale",
    "model.trunk.heads": "8",
    "model.trunk.positions.name": "none",
}
NO_INPUT_POSITIONS = {"model.embedder.positions": "none"}
# Sorted by value, the most valuable first.
CHANGES: Mapping[str, tuple[str, Options]] = {
    "base": ("CANINE-S trained fast", {}),
    "ngrams": ("n-grams of one to six", {"model.embedder.name": "ngram_hash"}),
    "no-concatenation": ("UP without the characters", {"model.upsampler.name": "repeat_add"}),
    "input-positions": ("positions at the input alone", {"model.trunk.positions.name": "none"}),
    "diet-rel": ("DIET-REL", {"model.trunk.positions.name": "diet_rel", **NO_INPUT_POSITIONS}),
    "diet-abs": ("DIET-ABS, layers share", {"model.trunk.positions.name": "diet_abs", **NO_INPUT_POSITIONS}),
    "mean": ("mean of four characters", {"model.downsampler.name": "strided_mean"}),
    "attention": ("attention to four characters", {"model.downsampler.name": "strided_attention"}),
    "local-layer": ("with the local layer", {"model.downsampler.layers": "1"}),
    "rate-6": ("6 characters a unit", {"model.downsampler.rate": "6"}),
    "vocabulary": (
        "character vocabulary",
        {"model.embedder.name": "character_vocabulary", "model.embedder.size": "4096"},
    ),
    "half-width": ("characters half as wide", {"model.character_width": "48"}),
    "keys-units": ("last layer attends to units", {"model.upsampler.keys": "units"}),
    "sliding": (
        "sliding windows of 8 units",
        {"model.trunk.attention.name": "sliding_global", "model.trunk.attention.one_sided_window": "8"},
    ),
    "multi-scale": ("multi-scale layers", MULTI_SCALE),
}


def _claim_rows() -> Iterator[Row]:
    for name, (label, changes) in CHANGES.items():
        characters = {} if "model.embedder.name" in changes else SINGLE_CHARACTERS
        options = {**CLAIMS_BASE, **characters, **changes}
        yield Row(f"claim-{name}", PRETRAIN, label, recipe=CLAIMS_RECIPE, options=options)


# Mirrored summation with as many layers as deepHier. Its other rows were run before this queue.
MIRRORED = {
    "task.length": "20",
    "task.size": "10",
    "task.dev_examples": "1000",
    "task.test_examples": "5000",
    "train.length": "21",
    "model.embedder.size": "10",
    "train.precision": "float32",
    "train.steps": "2000",
    "train.validate_every_steps": "250",
    "task.pairs": "2",
    "model.trunk.layers": "6",
}
SIX = Row("mirrored-six-2", FINETUNE, "Flex, six layers", None, "", "mirrored-summation", MIRRORED)

QUEUE: tuple[tuple[Row, ...], ...] = (
    (*_baselines(), *_scratch()),
    (*_pretrained(), *(row for name in FIRST for row in _of_set(name))),
    tuple(row for name in LATER for row in _of_set(name)),
    (*_claim_rows(), SIX),
)
ROWS = {row.name: row for stage in QUEUE for row in stage}


def main_score(line: Mapping[str, Any], part: str) -> float:
    """Return the main score of a run.

    With several predictors, the one that is best on the development part counts.
    """
    best = max(line["scores"].values(), key=lambda scores: _main(scores["dev"]))
    return _main(best[part])


def _main(scores: Mapping[str, float]) -> float:
    return next(scores[name] for name in ("f1", "accuracy", "relative_mse") if name in scores)
