"""The table of noise in docs/task_results.md: Byte2Word and subword BERT by scheme, from the lines of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.learning.claims import AGREES, DISAGREES, UNTOLD
from benchmarks.learning.claims import verdict as verdict_of
from benchmarks.learning.intervals import Interval, difference
from benchmarks.learning.page import markdown_table
from benchmarks.learning.results import Line
from benchmarks.tasks.rows import NOISE_ROWS
from tokenfree.train.analyses.noise import NONE, SCHEMES
from tokenfree.train.sweep.results.compare import mean_interval
from tokenfree.train.tasks.examples.noise import IN_WORDS

RANDOM_CASE = "random_case"
SCORE = "accuracy"
BYTE2WORD, BERT = (row.name for row in NOISE_ROWS)
BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Compared:
    """A row of the table: Byte2Word under a scheme against what its paper says it is better than.

    Attributes:
        scheme: of Byte2Word.
        against: what tables call the other side.
        row: of the other side.
        its_scheme: of the other side.
        is_claim: whether the paper says so; without noise that is a claim of its own, elsewhere on the page.
    """

    scheme: str
    against: str
    row: str
    its_scheme: str
    is_claim: bool = True


def compared() -> Iterator[Compared]:
    """All rows of the table, that without noise first."""
    yield Compared(NONE, "subword BERT", BERT, NONE, is_claim=False)
    for scheme in SCHEMES:
        if scheme == IN_WORDS:
            yield Compared(scheme, f"Byte2Word, `{RANDOM_CASE}`", BYTE2WORD, RANDOM_CASE)
        else:
            yield Compared(scheme, "subword BERT", BERT, scheme)


def noise(lines: Sequence[Line]) -> list[str]:
    """A row for each scheme that both sides have runs of, then the count of each verdict; empty without any."""
    head = ["noise", "struck", "Byte2Word", "its fall", "against", "accuracy", "its fall"]
    head += ["Byte2Word better by", "95% interval", "falls less by", "95% interval", "seeds", "verdict"]
    rows, found = [], []
    for each in compared():
        ours, theirs = of_seeds(lines, BYTE2WORD, each.scheme), of_seeds(lines, each.row, each.its_scheme)
        if not ours or not theirs:
            continue
        cells, less = [_mean(ours), "", each.against, _mean(theirs), ""], ("", "")
        if each.scheme != NONE:
            our_fall, their_fall = falls(lines, BYTE2WORD, each.scheme), falls(lines, each.row, each.its_scheme)
            cells[1], cells[4], less = _mean(our_fall), _mean(their_fall), _shown(above(their_fall, our_fall))
        more = _shown(above(ours, theirs))
        seeds = min(len(ours), len(theirs))
        said = verdict(ours, theirs) if each.is_claim else ""
        found += [said] if each.is_claim else []
        rows.append([f"`{each.scheme}`", f"{_rate(lines, each.scheme):.0%}", *cells, *more, *less, seeds, said])
    if not rows:
        return []
    counts = ", ".join(f"{found.count(kind)} {kind}" for kind in (AGREES, DISAGREES, UNTOLD))
    return [*markdown_table(head, rows), "", f"Of {len(found)} claims: {counts}."]


def of_seeds(lines: Sequence[Line], row: str, scheme: str) -> BySeed:
    """The accuracy on test with a scheme, by seed."""
    of_row = sorted((line for line in lines if line["row"] == row), key=lambda line: line["seed"])
    return {line["seed"]: line["noise"][scheme][SCORE] for line in of_row if scheme in line["noise"]}


def falls(lines: Sequence[Line], row: str, scheme: str) -> BySeed:
    """By how much the accuracy is under that without noise, by seed."""
    clean = of_seeds(lines, row, NONE)
    return {seed: clean[seed] - noisy for seed, noisy in of_seeds(lines, row, scheme).items()}


def verdict(better: BySeed, worse: BySeed) -> str:
    """As that of other claims: agrees or disagrees where the whole interval over at least three seeds says so."""
    return verdict_of(above(better, worse), min(len(better), len(worse)))


def above(one: BySeed, other: BySeed) -> Interval | None:
    """By how much the mean of one is above that of the other."""
    return difference(list(other.values()), list(one.values()))


def _shown(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "", ""
    return f"{interval.estimate:+.3f}", f"{interval.low:+.3f} to {interval.high:+.3f}"


def _mean(values: BySeed) -> str:
    """The mean over seeds, with its 95% interval in brackets where there are two or more."""
    found = mean_interval(list(values.values()))
    assert found is not None, "a side without seeds is left out"
    if found.half is None:
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} ({found.mean - found.half:.3f} to {found.mean + found.half:.3f})"


def _rate(lines: Sequence[Line], scheme: str) -> float:
    """The share of the characters that is struck."""
    return next(line["noise"][scheme]["rate"] for line in lines if line["row"] == BYTE2WORD and scheme in line["noise"])
