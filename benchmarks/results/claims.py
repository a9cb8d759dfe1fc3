"""Claims of the papers, each as a comparison of two rows, and what the runs say about them.

The papers judge downstream tasks after long pretraining. Here, the masked-only held-out loss of a short
pretraining decides, or the score of a task. Losses are compared only if all runs of both sides use context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.results.rows import main_score
from benchmarks.results.verdicts import BETTER, EQUAL, NATS_MARGIN, SCORE_MARGIN, WORSE, Interval, compare

Line = dict[str, Any]
AGREES, DISAGREES, NO_CONTEXT, NOT_RUN = ("agrees", "disagrees", "a side uses no context", "not run")
MIN_PROBE = 0.5  # nats of the context probe


@dataclass(frozen=True)
class Claim:
    """A claim that one row is better than another, or as good.

    Attributes:
        paper: Paper and table that claim it.
        text: Claim in words.
        numbers: Numbers of the paper.
        better, worse: Names of rows.
        equal: The claim is that `better` is only as good.
    """

    paper: str
    text: str
    numbers: str
    better: str
    worse: str
    equal: bool = False


class Finding(NamedTuple):
    """What the runs say about a claim."""

    verdict: str
    interval: Interval | None = None
    seeds: int = 0
    probe: float | None = None


def find(claim: Claim, lines: Sequence[Line]) -> Finding:
    """Return what the lines say about a claim."""
    sides = [[line for line in lines if line["row"] == name] for name in (claim.better, claim.worse)]
    if not all(sides):
        return Finding(NOT_RUN)
    probe = min((_probe(line) for side in sides for line in side if "evaluation" in line), default=None)
    better, worse = ([_measure(line) for line in side] for side in sides)
    verdict, interval, seeds = compare(better, worse, SCORE_MARGIN if probe is None else NATS_MARGIN)
    if probe is not None and probe <= MIN_PROBE:
        return Finding(NO_CONTEXT, interval, seeds, probe)
    on_claim = {BETTER: AGREES, WORSE: DISAGREES}
    if claim.equal:
        on_claim = {EQUAL: AGREES, BETTER: DISAGREES, WORSE: DISAGREES}
    return Finding(on_claim.get(verdict, verdict), interval, seeds, probe)


def _probe(line: Line) -> float:
    return line["evaluation"].get("probe", -math.inf)


def _measure(line: Line) -> float:
    """Return a measure that is better if higher: the negative loss, the negative squared error, or a score."""
    if "evaluation" in line:
        return -line["evaluation"]["validation_masked_only_loss"]
    score = main_score(line, "test")
    return -score if any("relative_mse" in found["test"] for found in line["scores"].values()) else score


TABLE_4, TABLE_6, TABLE_8 = "CANINE, Table 4", "CANINE, Table 6", "CANINE, Table 8"
DIET, ALPHA = "DIET, Tables 2 and 3", "multi-scale, Table 6"
MIRRORED = "multi-scale, mirrored summation"
PRETRAINING = "CANINE, its premise"
CLAIMS = (
    Claim("CANINE, Table 2", "n-grams help", "MinSpan 57.0 against 53.0", "claim-ngrams", "claim-base"),
    Claim(
        TABLE_4,
        "UP needs the characters from before DOWN",
        "MinSpan 53.0 against 35.6",
        "claim-base",
        "claim-no-concatenation",
    ),
    Claim(
        DIET,
        "DIET-REL beats positions at the input",
        "GLUE 85.2, 84.8",
        "claim-diet-rel",
        "claim-input-positions",
    ),
    Claim(
        DIET,
        "DIET-ABS beats positions at the input",
        "GLUE 85.2, 84.8",
        "claim-diet-abs",
        "claim-input-positions",
    ),
    Claim(
        "CANINE, its code", "a convolution beats the mean", "the mean diverged", "claim-base", "claim-mean"
    ),
    Claim(
        "CANINE, its choice", "a convolution beats attention pooling", "none", "claim-base", "claim-attention"
    ),
    Claim(TABLE_6, "the local layer helps", "MinSpan 52.2, 48.3", "claim-local-layer", "claim-base"),
    Claim(TABLE_6, "4 characters a unit beat 6", "MinSpan 52.2, 47.6", "claim-base", "claim-rate-6"),
    Claim(TABLE_6, "hashes beat a vocabulary", "MinSpan 52.2, 51.2", "claim-base", "claim-vocabulary"),
    Claim(
        TABLE_6, "characters half as wide are worse", "MinSpan 52.2, 49.3", "claim-base", "claim-half-width"
    ),
    Claim(TABLE_6, "attend to characters, not units", "MinSpan 52.5, 52.2", "claim-base", "claim-keys-units"),
    Claim(
        "Longformer CANINE",
        "sliding windows change nothing",
        "55.12, 55.05",
        "claim-base",
        "claim-sliding",
        equal=True,
    ),
    Claim(
        "multi-scale, SST",
        "multi-scale layers beat BERT's",
        "51.9, 50.4",
        "claim-multi-scale",
        "claim-input-positions",
    ),
    Claim(ALPHA, "a positive alpha is best: 0.5 against 0", "none", "ms-base", "ms-alpha-0"),
    Claim(ALPHA, "a negative alpha hurts: 0 against -0.5", "none", "ms-alpha-0", "ms-alpha-minus-0.5"),
    Claim(
        "DIET, Table 5",
        "DIET-REL: not shared beats shared by layers",
        "58.0, 57.3",
        "diet-rel",
        "diet-rel-shared",
    ),
    Claim("Byte2Word", "bytes 96 and 192 wide are as good", "none", "b2w-48", "b2w-24", equal=True),
    *(
        Claim(
            MIRRORED,
            f"{text}, K = {pairs}",
            "a curve",
            f"mirrored{better}-{pairs}",
            f"mirrored{worse}-{pairs}",
        )
        for text, better, worse in (
            ("the Transformer beats Flex", "-transformer", ""),
            ("Flex beats deepHier", "", "-deep-hier-s"),
            ("deepHier beats Hier", "-deep-hier-s", "-hier-s"),
        )
        for pairs in (2, 5, 10)
    ),
    Claim(
        MIRRORED, "six layers: Flex beats deepHier, K = 2", "none", "mirrored-six-2", "mirrored-deep-hier-s-2"
    ),
)
