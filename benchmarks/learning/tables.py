"""The tables of docs/results.md, in Markdown, made of the lines of results alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.learning.claims import AGREES, CLAIMS, DISAGREES, MIN_SEEDS, UNTOLD, Claim, verdict
from benchmarks.learning.intervals import Interval, difference
from benchmarks.learning.page import markdown_table
from benchmarks.learning.plan import COMPARISONS, MODELS, ROWS, Row
from benchmarks.learning.results import Line

MARGIN, PROBE = 0.2, 0.5  # nats: what a model shown to read has at least, its worst seed
MASKED_ONLY = "validation_masked_only_loss"
NONE = "-"


def tables(lines: Sequence[Line]) -> str:
    """All tables, with headings; rows without a run are left out, claims without one are told to be so."""
    return "\n".join(
        [
            "## Models shown to read",
            "",
            *models(lines),
            "",
            "## What the documents claim",
            "",
            *claims(lines),
            "",
            "## The runs of the comparisons",
            "",
            *comparisons(lines),
            "",
            "## The commands",
            "",
            *commands(lines),
            "",
        ]
    )


def models(lines: Sequence[Line]) -> list[str]:
    """A row for each model: the strongest guess without context, losses, margin and probe of the worst seed."""
    head = [
        *("model", "seeds", "strongest guess without context", "masked-only loss, worst seed", "mean", "margin"),
        *("context probe", "left the plateau after, M characters", "M subwords", "trained on, M characters"),
        *("thread-hours", "shown to read"),
    ]
    rows = []
    for row, of_row in _trained(lines, MODELS):
        losses = [_number(line, MASKED_ONLY) for line in of_row]
        rows.append(
            [
                row.label,
                str(len(of_row)),
                _strongest(of_row[0]),
                f"{max(losses):.3f}",
                f"{statistics.fmean(losses):.3f}",
                _interval(_least(of_row, "margin")),
                _interval(_least(of_row, "probe")),
                _plateau(of_row, "characters"),
                _plateau(of_row, "subwords"),
                f"{of_row[0]['characters'] / 1e6:.1f}",
                _hours(of_row),
                shown_to_read(of_row),
            ]
        )
    return markdown_table(head, rows)


def shown_to_read(lines: Sequence[Line]) -> str:
    """Whether every seed of a model is `MARGIN` under the strongest guess without context, with an interval that
    excludes 0, and its context probe `PROBE`; "cannot be told" with fewer than three seeds, unless one fails."""
    read = [
        _number(line, "margin") >= MARGIN and _number(line, "margin_low") > 0 and _number(line, "probe") >= PROBE
        for line in lines
    ]
    if not all(read):
        return f"no: {sum(read)} of {len(read)} seeds"
    return "yes" if len(read) >= MIN_SEEDS else UNTOLD


def claims(lines: Sequence[Line], made: Sequence[Claim] = CLAIMS) -> list[str]:
    """A row for each claim whose two sides have runs, then the count of each verdict, and of those that have none."""
    head = [
        "",
        "document",
        "claim",
        "its numbers",
        "ours, nats",
        "95% interval",
        "seeds",
        "seeds that read",
        "verdict",
    ]
    rows, found = [], []
    for number, claim in enumerate(made, 1):
        better, worse = ([line for line in lines if line["model"] == name] for name in (claim.better, claim.worse))
        if not better or not worse:  # nothing to tell of yet
            continue
        seeds = min(len(better), len(worse))
        interval = difference(*([_measured(line, claim) for line in side] for side in (better, worse)))
        found.append(verdict(interval, seeds, claim.within))
        text = claim.text if claim.within is None else f"{claim.text} (within {claim.within} nats)"
        if claim.measure == "curve":
            text += " (mean of the held-out losses on the way)"
        ours = ["", ""]
        if interval is not None:
            ours = [f"{interval.estimate:+.3f}", f"{interval.low:+.3f} to {interval.high:+.3f}"]
        sides = ", ".join(f"{sum(map(_reads, side))} of {len(side)}" for side in (better, worse))
        rows.append([str(number), claim.document, text, claim.numbers, *ours, str(seeds), sides, found[-1]])
    counts = ", ".join(f"{found.count(kind)} {kind}" for kind in (AGREES, DISAGREES, UNTOLD))
    without = len(made) - len(found)
    told = [f"Of {len(found)} claims: {counts}."] if found else []
    told += [f"Of {without} more in `benchmarks/learning/claims.py` a side has no run yet."] if without else []
    return [*(markdown_table(head, rows) if found else []), "", " ".join(told)]


def comparisons(lines: Sequence[Line]) -> list[str]:
    """A row for each setting that was compared, with its budget and its losses."""
    head = ["row", "setting", "steps", "M characters", "masked-only loss, mean", "of each seed", "least context probe"]
    head += ["left the plateau after, M characters", "thread-hours"]
    rows = []
    for row, of_row in _trained(lines, COMPARISONS):
        losses = [_number(line, MASKED_ONLY) for line in of_row]
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        budget = [f"{row.steps:,}", f"{of_row[0]['characters'] / 1e6:.1f}"]
        reading = [_interval(_least(of_row, "probe")), _plateau(of_row, "characters"), _hours(of_row)]
        rows.append([f"`{row.name}`", row.label, *budget, f"{statistics.fmean(losses):.3f}", each, *reading])
    total = sum(line["seconds"] for line in lines) / 3600
    table = [*markdown_table(head, rows), ""] if rows else []
    return [*table, f"All {len(lines)} runs of this page: {total:.1f} thread-hours of training."]


def commands(lines: Sequence[Line]) -> list[str]:
    """The command of each setting that has a run, as the run had it; what all of them share stands first."""
    shared = set.intersection(*(set(line["overrides"].items()) for line in lines)) if lines else set()
    rows = ["```", f'O="{_options(sorted(shared))}"']
    for stage in (MODELS, COMPARISONS):
        for row, (line, *_) in _trained(lines, stage):
            own = [item for item in line["overrides"].items() if item not in shared]
            paths = f"--data data/{line['data']} --output runs/{row.name}-SEED"
            options = _options([*own, ("train.seed", "SEED")])
            rows.append(f"tokenfree pretrain {line['recipe']} {paths} $O {options}")
    return [*rows, "```"]


def _options(items: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"--{key} {value}" for key, value in items)


def _trained(lines: Sequence[Line], stage: str) -> Iterable[tuple[Row, list[Line]]]:
    for row in ROWS:
        of_row = sorted((line for line in lines if line["model"] == row.name), key=lambda line: line["seed"])
        if row.stage == stage and of_row:
            yield row, of_row


def _number(line: Line, name: str) -> float:
    """A number of `evaluate`; not a number where it gave none, which no condition holds for."""
    value = line["evaluation"].get(name)
    return float("nan") if value is None else float(value)


def _measured(line: Line, claim: Claim) -> float:
    if claim.measure == "curve":
        return statistics.fmean(loss for _, loss in line["curve"])
    return _number(line, MASKED_ONLY)


def _strongest(line: Line) -> str:
    """The lowest of the masked-only baselines, by name; the same for all seeds, whose held-out targets are the same."""
    named = {name: _number(line, f"baseline_masked_only_{name}") for name in ("unigram", "clue")}
    there = {name: value for name, value in named.items() if value == value}
    name = min(there, key=lambda name: there[name], default=None)
    return NONE if name is None else f"{there[name]:.3f} ({name})"


def _least(lines: Sequence[Line], name: str) -> Interval | None:
    """The number `name` of the seed where it is lowest, with its own interval over windows."""
    line = min(lines, key=lambda line: _number(line, name))
    value = _number(line, name)
    if name != "probe":
        return Interval(value, _number(line, f"{name}_low"), _number(line, f"{name}_high"))
    kind = min(("probe_blank", "probe_other"), key=lambda kind: _number(line, kind))
    return Interval(value, _number(line, f"{kind}_low"), _number(line, f"{kind}_high"))


def _interval(interval: Interval | None) -> str:
    if interval is None or interval.estimate != interval.estimate:
        return NONE
    return f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _reads(line: Line) -> bool:
    return _number(line, "probe") >= PROBE


def _left(line: Line) -> bool:
    return line["plateau"] is not None


def _plateau(lines: Sequence[Line], unit: str) -> str:
    """When the first and the last seed left the plateau, in millions of a unit; "never" for those that did not."""
    known = sorted(line["plateau"][unit] / 1e6 for line in lines if _left(line))
    never = len(lines) - len(known)
    first_and_last = dict.fromkeys(f"{each:.1f}" for each in (known[:1] + known[-1:]))
    return "; ".join([*filter(None, [" to ".join(first_and_last)]), *([f"{never} never"] if never else [])])


def _hours(lines: Sequence[Line]) -> str:
    return f"{sum(line['seconds'] for line in lines) / 3600:.1f}"
