"""What the documents claim of tasks, each as a pair of rows of the queue on one or more sets of examples."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.learning.claims import BYTE2WORD, CANINE, UNTOLD
from benchmarks.learning.claims import verdict as verdict_of
from benchmarks.learning.intervals import Interval, difference
from benchmarks.learning.results import Line
from benchmarks.tasks.rows import DOMAINS, NAMES, PAIRS, TEXTS
from benchmarks.tasks.work import main_score

LOWER_IS_BETTER = ("relative_mse",)


@dataclass(frozen=True)
class Claim:
    """A row does better than another, in the mean over pairs of rows.

    Attributes:
        document: where it is claimed.
        text: the claim, in words.
        numbers: the document's own; "none" where it gives a direction and no numbers.
        sides: names of rows, the better first. With several pairs their scores are averaged seed by seed.
    """

    document: str
    text: str
    numbers: str
    sides: tuple[tuple[str, str], ...]


def scores(lines: Sequence[Line], rows: Sequence[str]) -> Mapping[int, float]:
    """The main score on test by seed, in the mean over `rows`; only seeds that all of them have."""
    by_row = [{line["seed"]: line["test"][main_score(line)] for line in lines if line["row"] == row} for row in rows]
    seeds = set.intersection(*(set(each) for each in by_row))
    return {seed: statistics.fmean(each[seed] for each in by_row) for seed in sorted(seeds)}


def measured(lines: Sequence[Line], claim: Claim) -> tuple[Interval | None, int]:
    """By how much the better side is better, negative where it is worse, and the seeds of the side with fewer."""
    better, worse = (list(scores(lines, [pair[side] for pair in claim.sides]).values()) for side in (0, 1))
    rows = {row for pair in claim.sides for row in pair}
    lower = any(main_score(line) in LOWER_IS_BETTER for line in lines if line["row"] in rows)
    return difference(better, worse) if lower else difference(worse, better), min(len(better), len(worse))


def verdict(lines: Sequence[Line], claim: Claim) -> str:
    """Agrees or disagrees where the whole interval over at least three seeds says so, else it cannot be told."""
    interval, seeds = measured(lines, claim)
    return UNTOLD if interval is None else verdict_of(interval, seeds)


MIRRORED = "multi-scale, mirrored summation"
ORDER = (
    ("the Transformer is better than Flex", "-transformer", ""),
    ("Flex is better than deepHier", "", "-deep-hier-s"),
    ("deepHier is better than Hier, slightly", "-deep-hier-s", "-hier-s"),
)
SST, MTL, SNLI = "multi-scale, SST", "multi-scale, MTL-16", "multi-scale, Table 6"
MULTI_SCALE = "multi-scale is better than the standard Transformer"
FULL = "multi-scale is better than full attention of equal size"
AGAINST_FULL = "none; its premise"
TABLE_8 = "CANINE, Table 8"


def _claims() -> Iterator[Claim]:
    for text, better, worse in ORDER:
        for pairs in PAIRS:
            sides = ((f"mirrored{better}-{pairs}", f"mirrored{worse}-{pairs}"),)
            yield Claim(MIRRORED, f"{text}, K = {pairs}", "a curve", sides)
    for text, other, sst, mtl in (
        (MULTI_SCALE, "standard", "accuracy 51.9 against 50.4", "3.56 points of accuracy over 16 domains"),
        (FULL, "full", AGAINST_FULL, AGAINST_FULL),
    ):
        yield Claim(SST, f"{text}, SST-5", sst, (("sst5-ms", f"sst5-{other}"),))
        yield Claim(SST, f"{text}, SST-2", "none", (("sst2-ms", f"sst2-{other}"),))
        domains = tuple((f"{domain}-ms", f"{domain}-{other}") for domain in DOMAINS)
        yield Claim(MTL, f"{text}, mean of four domains", mtl, domains)
    for data in (*TEXTS, *NAMES):
        sides = ((f"{data}-canine", f"{data}-canine-untrained"),)
        yield Claim(CANINE, f"pretraining helps CANINE-S, {data}", "none; its premise", sides)
    yield Claim(
        TABLE_8,
        "a subword BERT is better than CANINE, Swahili names",
        "F1 87.1 against 72.7 (CANINE-C)",
        (("swa-bert", "swa-canine"),),
    )
    yield Claim(
        TABLE_8,
        "a subword BERT is better than CANINE, English names",
        "F1 91.1 against 79.8 (CANINE-C, CoNLL)",
        (("ewt-bert", "ewt-canine"),),
    )
    for data, language, numbers in (
        ("ewt", "English", "F1 89.8 against 79.8 (CoNLL)"),
        ("swa", "Swahili", "F1 83.7 against 72.7"),
        ("amh", "Amharic", "F1 50.0 against 44.6"),
    ):
        text = f"n-grams help CANINE, {language} names (here both untrained)"
        yield Claim(TABLE_8, text, f"{numbers}, pretrained", ((f"{data}-ngrams", f"{data}-canine-untrained"),))
    yield Claim(
        TABLE_8,
        "CANINE is better than a subword BERT whose vocabulary lacks the script, Amharic names",
        "F1 44.6 against 0.0 (CANINE-C)",
        (("amh-canine", "amh-bert"),),
    )
    yield Claim(BYTE2WORD, "Byte2Word is better than a subword BERT, SST-2", "none", (("sst2-byte2word", "sst2-bert"),))
    for scheme in ("drop", "repeat", "uppercase", "random-case"):
        text = f"Byte2Word is better than a subword BERT, SST-2 with noise in all parts: {scheme}"
        yield Claim(BYTE2WORD, text, "none", ((f"sst2-{scheme}-byte2word", f"sst2-{scheme}-bert"),))
    text = "random case costs Byte2Word less after the words are parted than before, SST-2 with noise in all parts"
    yield Claim(BYTE2WORD, text, "none", (("sst2-random-case-in-words-byte2word", "sst2-random-case-byte2word"),))
    yield Claim(SNLI, f"{MULTI_SCALE}, SNLI", "85.9 against a number not given", (("snli-ms", "snli-standard"),))
    yield Claim(SNLI, f"{FULL}, SNLI", AGAINST_FULL, (("snli-ms", "snli-full"),))
    single = (("snli-ms", "snli-single-3"),)
    yield Claim(SNLI, "several scales are better than one, 3, SNLI", "85.9 against 84.3, the best of one scale", single)


CLAIMS = tuple(_claims())
