"""Write tables and a picture from the lines of results: docs/results.md, and README.md with every row."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results.claims import AGREES, CLAIMS, DISAGREES, NO_CONTEXT, NOT_RUN, Finding, find
from benchmarks.results.data import NAMES, SETS
from benchmarks.results.linear import CRF, REGRESSION
from benchmarks.results.page import markdown_table, pretraining_values
from benchmarks.results.queue import NotReady, RateChoice, choose_rate, runs
from benchmarks.results.rows import LARGER, LONGER, PRETRAINED, ROWS, SCRATCH, UNTRAINED
from benchmarks.results.simple import FREQUENT_TAG, LARGER_CLASS, NGRAMS, PROBE
from benchmarks.results.verdicts import SCORE_MARGIN, VERDICTS, compare, counted, mean_interval

Line = dict[str, Any]
PAGE, DETAILS, PICTURE = "docs/results.md", "benchmarks/results/README.md", "docs/images/results.png"
TEMPLATE = Path(__file__).with_name("page.md")
BEGIN = "<!-- written by `python -m benchmarks.results tables` -->"
END = "<!-- end of what is written -->"
COMPARED = {
    NAMES: (FREQUENT_TAG, CRF, SCRATCH, PROBE, UNTRAINED, PRETRAINED, LARGER),
    "": (LARGER_CLASS, REGRESSION, SCRATCH, PROBE, UNTRAINED, PRETRAINED, LONGER, LARGER),
}
EXACT = (FREQUENT_TAG, LARGER_CLASS, NGRAMS, CRF, REGRESSION)  # no randomness
NONE, AT_END = "not run", "†"
COMPARISONS = ["default recipe against linear model", "pretrained against untrained"]


def pages(repository: Path, lines: Mapping[str, Line], earlier: Mapping[str, Line]) -> dict[str, str]:
    """Return the text of docs/results.md, from its template, and of README.md here, with its tables replaced."""
    values = {**pretraining_values(lines, earlier), "tasks": page_tables(lines)}
    head, _, rest = (repository / DETAILS).read_text(encoding="utf-8").partition(BEGIN)
    foot = rest.partition(END)[2]
    return {
        PAGE: TEMPLATE.read_text(encoding="utf-8").format(**values),
        DETAILS: f"{head}{BEGIN}\n\n{details(lines)}\n\n{END}{foot}",
    }


def write(repository: Path, lines: Mapping[str, Line], earlier: Mapping[str, Line]) -> None:
    """Write both pages, and the picture."""
    for page, text in pages(repository, lines, earlier).items():
        (repository / page).write_text(text, encoding="utf-8")
    draw(repository / PICTURE, lines)


class Scores:
    """Scores of each set and predictor on the test part, by seed, at the rate that the sweep chose."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        self.rates: dict[str, RateChoice] = {}
        self._found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for line in lines.values():
            row = ROWS.get(line["row"])
            if row is None or row.set is None or not self._is_of_chosen_rate(line, lines):
                continue
            for predictor, scores in line["scores"].items():
                self._found.setdefault((row.set, predictor), []).append(scores["test"])

    def _is_of_chosen_rate(self, line: Line, lines: Mapping[str, Line]) -> bool:
        row = ROWS[line["row"]]
        if not row.rates:
            return True
        try:
            self.rates[row.name] = choice = choose_rate(row, lines)
        except NotReady:
            return False
        return line.get("rate", choice.rate) == choice.rate

    def values(self, name: str, predictor: str, score: str) -> list[float]:
        """Return the score of each seed, or an empty list if nothing has run."""
        return [scores[score] for scores in self._found.get((name, predictor), ())]

    def mean(self, name: str, predictor: str, score: str) -> float | None:
        """Return the mean over seeds."""
        values = self.values(name, predictor, score)
        return statistics.fmean(values) if values else None

    def mark(self, name: str, predictor: str) -> str:
        """Return `AT_END` if the rate of a predictor on a set lies at the end of the rates tried, else nothing."""
        choices = (
            choice
            for row, choice in self.rates.items()
            if (ROWS[row].set, ROWS[row].label) == (name, predictor)
        )
        return AT_END if any(choice.is_at_end for choice in choices) else ""

    def verdict(self, name: str, predictor: str, other: str) -> str:
        """Return the verdict on a predictor against another one on a set, or `NONE` if one has not run."""
        score = "f1" if SETS[name].kind == NAMES else "accuracy"
        one_side, other_side = (self.values(name, side, score) for side in (predictor, other))
        if not one_side or not other_side:
            return NONE
        return compare(one_side, other_side, SCORE_MARGIN, other_is_exact=other in EXACT).verdict


def page_tables(lines: Mapping[str, Line]) -> str:
    """Return the tables of tasks and claims for users, and sentences that count verdicts and runs."""
    scores = Scores(lines)
    return "\n\n".join(
        [
            "### Names: F1, all names and names not seen in training",
            markdown_table(*_that_ran(*_names(scores))),
            "### Texts: accuracy",
            markdown_table(*_that_ran(*_texts(scores))),
            *_sentences(scores, lines),
            "### Learning rates, the best on a development part",
            _rates(scores),
            f"{AT_END} The best rate lies at an end of the rates tried, which were not extended.",
            "### Claims of the papers",
            _claims(lines),
        ]
    )


def _names(scores: Scores) -> tuple[list[str], list[list[str]]]:
    rows = []
    for name in (name for name in SETS if SETS[name].kind == NAMES):
        cells = []
        for predictor in COMPARED[NAMES]:
            both = [_number(scores.mean(name, predictor, score)) for score in ("f1", "f1 unseen")]
            cells.append(NONE if NONE in both else " / ".join(both) + scores.mark(name, predictor))
        rows.append([SETS[name].label, *cells, *_verdicts(scores, name, CRF)])
    return ["set", *COMPARED[NAMES], *COMPARISONS], rows


def _texts(scores: Scores) -> tuple[list[str], list[list[str]]]:
    rows = []
    for name in (name for name in SETS if SETS[name].kind != NAMES):
        cells = [
            _number(scores.mean(name, predictor, "accuracy")) + scores.mark(name, predictor)
            for predictor in COMPARED[""]
        ]
        rows.append([SETS[name].label, *cells, *_verdicts(scores, name, REGRESSION)])
    return ["set", *COMPARED[""], *COMPARISONS], rows


def _that_ran(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the table without columns in which nothing has run."""
    columns = [
        (name, cells)
        for name, cells in zip(head, zip(*rows, strict=True), strict=True)
        if any(cell != NONE for cell in cells)
    ]
    return [name for name, _ in columns], [
        list(row) for row in zip(*(cells for _, cells in columns), strict=True)
    ]


def _verdicts(scores: Scores, name: str, linear: str) -> list[str]:
    """Return the verdicts of `COMPARISONS` on a set."""
    return [scores.verdict(name, SCRATCH, linear), scores.verdict(name, PRETRAINED, UNTRAINED)]


def _sentences(scores: Scores, lines: Mapping[str, Line]) -> list[str]:
    done = sum(_is_done(run, lines) for run in runs())
    recipes: dict[str, list[str]] = {"names": [], "texts": []}
    pretraining = []
    for name, examples in SETS.items():
        kind, linear = ("names", CRF) if examples.kind == NAMES else ("texts", REGRESSION)
        on_recipe, on_pretraining = _verdicts(scores, name, linear)
        recipes[kind] += [on_recipe] if on_recipe != NONE else []
        pretraining += [on_pretraining] if on_pretraining != NONE else []
    sentences = [f"{done} of {len(runs())} runs are done."]
    if any(recipes.values()):
        counts = "; ".join(f"{kind} {counted(verdicts)}" for kind, verdicts in recipes.items())
        sentences.append(f"From scratch, the default recipe against the linear model: {counts}.")
    if pretraining:
        sentences.append(f"Without a linear path, pretrained against untrained: {counted(pretraining)}.")
    return sentences


def _rates(scores: Scores) -> str:
    """Return the table of the rates that were tried and chosen."""
    sets: dict[tuple[str, RateChoice], list[str]] = {}
    for name, choice in scores.rates.items():
        sets.setdefault((ROWS[name].label, choice), []).append(str(ROWS[name].set))
    rows = []
    for (label, choice), names in sets.items():
        rate = choice.rate + (AT_END if choice.is_at_end else "")
        chosen_on = SETS[str(ROWS[choice.row].set)].label
        rows.append([label, chosen_on, ", ".join(choice.tried), rate, ", ".join(sorted(names))])
    return markdown_table(["model", "development part", "tried", "best", "used for"], sorted(rows))


def _claims(lines: Mapping[str, Line]) -> str:
    """Return the table of the claims of the papers by verdict."""
    texts: dict[str, list[str]] = {}
    for claim in CLAIMS:
        texts.setdefault(find(claim, list(lines.values())).verdict, []).append(claim.text)
    order = (AGREES, DISAGREES, *VERDICTS, NO_CONTEXT, NOT_RUN)
    rows = [
        [verdict, str(len(texts[verdict])), "; ".join(texts[verdict])]
        for verdict in order
        if verdict in texts
    ]
    return markdown_table(["verdict", "claims", "which"], rows)


def _is_done(run: Any, lines: Mapping[str, Line]) -> bool:
    try:
        return run.name(dict(lines)) in lines
    except NotReady:
        return False


def details(lines: Mapping[str, Line]) -> str:
    """Return all claims, rows and commands."""
    by_row: dict[str, list[Line]] = {}
    for line in lines.values():
        by_row.setdefault(line["row"] + (f"@{line['rate']}" if "rate" in line else ""), []).append(line)
    listed = sorted(by_row.items())
    pretrained = [_pretrained_row(name, of_row) for name, of_row in listed if "evaluation" in of_row[0]]
    scored = [_scored_row(*each) for name, of_row in listed for each in _predictors(name, of_row)]
    commands = [of_row[0]["command"] for _, of_row in listed]
    return "\n\n".join(
        [
            "## Claims",
            markdown_table(
                [
                    "paper",
                    "claim",
                    "its numbers",
                    "ours",
                    "95% interval",
                    "seeds",
                    "least context probe",
                    "verdict",
                ],
                [_claim_row(claim, find(claim, list(lines.values()))) for claim in CLAIMS],
            ),
            "## Pretraining",
            markdown_table(
                [
                    "row",
                    "seeds",
                    "M characters",
                    "masked-only loss",
                    "least margin",
                    "least probe",
                    "CPU minutes",
                ],
                pretrained,
            ),
            "## Tasks",
            markdown_table(
                [
                    "row",
                    "predictor",
                    "seeds",
                    "dev",
                    "test, 95% interval",
                    "of each seed",
                    "parts of the test",
                    "CPU minutes",
                ],
                scored,
            ),
            "## Commands of seed 0",
            "```\n" + "\n".join(commands) + "\n```",
        ]
    )


def _claim_row(claim: Any, found: Finding) -> list[str]:
    ours = ["", ""]
    if found.interval is not None:
        ours = [f"{found.interval.estimate:+.3f}", f"{found.interval.low:+.3f} to {found.interval.high:+.3f}"]
    probe = "" if found.probe is None else f"{found.probe:.2f}"
    return [claim.paper, claim.text, claim.numbers, *ours, str(found.seeds or ""), probe, found.verdict]


def _pretrained_row(name: str, of_row: Sequence[Line]) -> list[str]:
    found = [line["evaluation"] for line in of_row]
    least = [f"{min(each.get(key, float('nan')) for each in found):.2f}" for key in ("margin", "probe")]
    loss = statistics.fmean(each["validation_masked_only_loss"] for each in found)
    return [
        f"`{name}`",
        str(len(of_row)),
        f"{of_row[0]['characters'] / 1e6:.1f}",
        f"{loss:.3f}",
        *least,
        _minutes(of_row),
    ]


def _predictors(name: str, of_row: Sequence[Line]) -> Iterable[tuple[str, str, Sequence[Line]]]:
    for predictor in of_row[0].get("scores", ()):
        yield name, predictor, of_row


def _scored_row(name: str, predictor: str, of_row: Sequence[Line]) -> list[str]:
    parts = {part: [line["scores"][predictor][part] for line in of_row] for part in ("dev", "test")}
    main = next(score for score in ("f1", "accuracy", "relative_mse") if score in parts["test"][0])
    test = [scores[main] for scores in parts["test"]]
    mean = mean_interval(test)
    shown = f"{mean.estimate:.3f}" + ("" if len(test) < 2 else f" ({mean.low:.3f} to {mean.high:.3f})")
    others = [score for score in parts["test"][0] if score.startswith(main) and score != main]
    rest = (
        f"{other.removeprefix(main).strip()} {statistics.fmean(each[other] for each in parts['test']):.3f}"
        for other in others
    )
    dev = statistics.fmean(scores[main] for scores in parts["dev"])
    each = ", ".join(f"{value:.3f}" for value in test)
    return [
        f"`{name}`",
        predictor,
        str(len(test)),
        f"{dev:.3f}",
        shown,
        each,
        "; ".join(rest),
        _minutes(of_row),
    ]


def _minutes(of_row: Sequence[Line]) -> str:
    spent = [line["cpu_seconds"] for line in of_row if "cpu_seconds" in line]
    return f"{statistics.fmean(spent) / 60:.1f}" if spent else "-"


def draw(file: Path, lines: Mapping[str, Line]) -> None:
    """Draw the F1 of names not seen in training, and the accuracy of texts."""
    from matplotlib.figure import Figure

    scores = Scores(lines)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for axes, of_names in zip(figure.subplots(1, 2), (True, False), strict=True):
        names = [name for name in SETS if (SETS[name].kind == NAMES) == of_names]
        score = "f1 unseen" if of_names else "accuracy"
        predictors = COMPARED[NAMES] if of_names else COMPARED[""][1:]
        for number, predictor in enumerate(predictors):
            points = [(place, scores.mean(name, predictor, score)) for place, name in enumerate(names)]
            there = [(place + 0.13 * number - 0.3, value) for place, value in points if value is not None]
            axes.bar(*zip(*there, strict=True), width=0.13, label=predictor) if there else None
        axes.set_xticks(range(len(names)), names, rotation=45)
        axes.set_title("F1 of names not seen in training" if of_names else "Accuracy of texts")
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    figure.savefig(file, dpi=150, metadata={"Software": None})


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"
