"""What the documents claim, each as a pair of rows of the queue, and what the runs say of it.

The documents judge by downstream tasks after long pretraining, here the held-out loss of targets that are masked
decides after a short one: a claim is tested as it stands at this size, not the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.learning.intervals import Interval

AGREES, DISAGREES, UNTOLD = "agrees", "disagrees", "cannot be told"
MIN_SEEDS = 3
CANINE, MULTI_SCALE, DIET, BYTE2WORD, LONGFORMER = "CANINE", "multi-scale", "DIET", "Byte2Word", "Longformer CANINE"


@dataclass(frozen=True)
class Claim:
    """A row is better than another, or as good.

    Attributes:
        document: where it is claimed.
        text: the claim, in words.
        numbers: the document's own; "none" where it gives a direction and no numbers.
        better, worse: names of rows of the queue. Our difference is that of `worse` less that of `better`.
        within: None: `better` has the lower loss; a number: the two differ by no more than so many nats.
        measure: `final`, the masked-only loss of the last checkpoint, or `curve`, the mean of all held-out losses on
            the way, which is the lower the sooner a model learns.
    """

    document: str
    text: str
    numbers: str
    better: str
    worse: str
    within: float | None = None
    measure: Literal["final", "curve"] = "final"


def verdict(interval: Interval | None, seeds: int, within: float | None = None) -> str:
    """`AGREES` or `DISAGREES` where the whole interval says so, else `UNTOLD`; also with fewer than three seeds.

    Args:
        interval: of `worse` less `better`, nats; None where there is none.
        seeds: of the side that has fewer.
        within: see `Claim`.
    """
    if interval is None or seeds < MIN_SEEDS:
        return UNTOLD
    bound = 0.0 if within is None else within
    if within is None:
        agrees, disagrees = interval.low > 0, interval.high < 0
    else:
        agrees = -bound < interval.low and interval.high < bound
        disagrees = interval.low > bound or interval.high < -bound
    return AGREES if agrees else DISAGREES if disagrees else UNTOLD


SIMILAR = 0.05  # nats: what "similar" and "no difference" are taken to mean, 5% of the perplexity
TABLE_6 = "CANINE, Table 6"
TABLE_4 = "CANINE, Table 4"
SNLI = "multi-scale, Table 6"
RATES = "the more characters a unit has, the worse"
BYTE_WIDTHS = "all widths of bytes reach a similar perplexity"
SOONEST = "bytes 192 wide (here 48) learn soonest"

CLAIMS = (
    Claim("CANINE, its code", "a convolution is better than the mean", "the mean diverged", "s-base", "s-mean"),
    Claim("CANINE, its choice", "a convolution is better than attention pooling", "none", "s-base", "s-attention"),
    Claim(TABLE_6, "the local layer helps", "MinSpan 52.2 against 48.3", "s-base", "s-no-local-layer"),
    Claim(TABLE_6, f"{RATES}: 4 against 5", "MinSpan 52.2 against 49.2", "s-base", "s-rate-5"),
    Claim(TABLE_6, f"{RATES}: 5 against 6", "MinSpan 49.2 against 47.6", "s-rate-5", "s-rate-6"),
    Claim(
        TABLE_6,
        "the final layer should attend to characters, not to units",
        "MinSpan 52.5 against 52.2",
        "s-base",
        "s-attend-down",
    ),
    Claim(TABLE_6, "half the buckets are worse", "MinSpan 52.2 against 50.5", "s-base", "s-half-buckets"),
    Claim(
        TABLE_6,
        "hashes are better than a character vocabulary",
        "MinSpan 52.2 against 51.2 (SelectP 64.5 against 64.6)",
        "s-base",
        "s-vocabulary",
    ),
    Claim(TABLE_6, "characters half as wide are worse", "MinSpan 52.2 against 49.3", "s-base", "s-half-width"),
    Claim(
        TABLE_6,
        "characters a quarter as wide are worse still",
        "MinSpan 49.3 against 47.3",
        "s-half-width",
        "s-quarter-width",
    ),
    Claim(
        "CANINE, Table 2",
        "CANINE-S is better than a character BERT that predicts subwords",
        "MinSpan 52.5 against 50.2",
        "s-base",
        "s-char-bert",
    ),
    Claim(
        LONGFORMER,
        "sliding windows in the deep stack change nothing",
        "MinSpan 55.12 against 55.05",
        "s-base",
        "s-longformer",
        within=SIMILAR,
    ),
    Claim(
        "multi-scale, SST",
        "multi-scale is better than the standard Transformer",
        "accuracy 51.9 against 50.4",
        "ms-base",
        "ms-standard",
    ),
    Claim(SNLI, "a positive alpha is best: 0.5 against 0", "none", "ms-base", "ms-alpha-0"),
    Claim(SNLI, "a negative alpha hurts: 0 against -0.5", "none", "ms-alpha-0", "ms-alpha-minus-0.5"),
    Claim(SNLI, "a negative alpha hurts: 0 against -1", "none", "ms-alpha-0", "ms-alpha-minus-1"),
    *(
        Claim(
            SNLI,
            f"several scales are better than one: {scale}",
            "accuracy 85.9 against 84.3, the best of one scale",
            "ms-base",
            f"ms-single-{name}",
        )
        for scale, name in (("3", "3"), ("N/16", "n16"), ("N/4", "n4"))
    ),
    Claim(
        "DIET, Tables 2 and 3",
        "DIET-REL is better than absolute positions at the input",
        "GLUE 85.2 against 84.8, XTREME 58.0 against 55.3",
        "diet-rel",
        "diet-input",
    ),
    Claim(
        "DIET, Tables 2 and 3",
        "DIET-ABS, shared by layers, is better than absolute positions at the input",
        "GLUE 85.2 against 84.8, XTREME 58.9 against 55.3",
        "diet-abs-shared",
        "diet-input",
    ),
    Claim(
        "DIET, Table 5",
        "DIET-REL: nothing shared is better than shared by layers",
        "XTREME 58.0 against 57.3",
        "diet-rel",
        "diet-rel-shared",
    ),
    Claim(
        "DIET, Table 5",
        "DIET-REL: nothing shared is better than shared by heads",
        "XTREME 58.0 against 54.7",
        "diet-rel",
        "diet-rel-heads",
    ),
    Claim(
        "DIET, Table 5",
        "DIET-ABS: shared by layers is better than nothing shared",
        "XTREME 58.9 against 56.8",
        "diet-abs-shared",
        "diet-abs",
    ),
    *(
        Claim(BYTE2WORD, f"{BYTE_WIDTHS}: {paper} against 192", "none", "b2w-48", f"b2w-{here}", within=SIMILAR)
        for paper, here in ((96, 24), (512, 128), (1024, 256))
    ),
    *(
        Claim(BYTE2WORD, f"{SOONEST}: against {paper}", "none", "b2w-48", f"b2w-{here}", measure="curve")
        for paper, here in ((96, 24), (512, 128), (1024, 256))
    ),
    Claim(
        BYTE2WORD,
        "pooling by attention is better than by convolutions, over pseudo-words",
        "none",
        "b2w-pseudo",
        "b2w-cnn",
    ),
    Claim("CANINE, Table 2", "n-grams help CANINE-C", "MinSpan 57.0 against 53.0", "c-ngrams", "c-base"),
    Claim(
        TABLE_4,
        "UP needs the characters from before DOWN, concatenated",
        "MinSpan 53.0 against 35.6",
        "c-base",
        "c-no-concatenation",
    ),
    Claim(
        TABLE_4,
        "a residual from the characters alone does not replace them",
        "MinSpan 53.0 against 35.9",
        "c-base",
        "c-residual-initial",
    ),
    Claim(
        TABLE_4,
        "residuals from the characters and the units are nearly as good as the concatenation, and worse",
        "MinSpan 53.0 against 50.2",
        "c-base",
        "c-residual-units",
    ),
    Claim(
        TABLE_4,
        "with the residual from the units too it is far better",
        "MinSpan 50.2 against 35.9",
        "c-residual-units",
        "c-residual-initial",
    ),
)
