"""The section of a fine-tuned run, and a table of several."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenfree.workflows.report.figures import line_figures as figures
from tokenfree.workflows.report.finetuned.labels import label_block
from tokenfree.workflows.report.finetuned.predictions import prediction_block, predictions
from tokenfree.workflows.report.load import RunRecord
from tokenfree.workflows.report.sections.parts import Block, Section, Table, count, decimal, duration
from tokenfree.workflows.report.sections.run_comparison import names
from tokenfree.workflows.report.sections.run_section import (
    num_restarts,
    recipe_of,
    record_blocks,
    restarted_at,
    seconds,
)

SPLITS = {"dev": "development set", "test": "test set"}
MOST_SCORES = 4  # in one picture


def finetuned_section(run: RunRecord) -> Section:
    """The section of one run, ended or not."""
    result = run.result or {}
    main, planned, best = main_score(run), recipe_of(run).get("train", {}).get("steps"), best_step(run)
    scored = {split: scores for split in SPLITS if (scores := _scores(result.get(split)))}
    numbers = [(decimal(next(iter(scores.values()))), f"{_name(main)}, {split}") for split, scores in scored.items()]
    if not numbers and run.validations:
        numbers.append((decimal(run.validations[-1].get("validation_main")), f"{_name(main)}, dev, so far"))
    restarts = num_restarts(run)
    numbers += [
        (f"{run.steps[-1]['step'] if run.steps else 0:,}", f"of {planned:,} steps" if planned else "steps"),
        *([(f"{best:,}", "the step that is kept")] if best is not None else []),
        (count(sum(line.get("characters", 0) for line in run.steps)), "characters read"),
        (duration(seconds(run)[-1] if run.steps else 0.0), "in steps"),
        (str(restarts), "restart" if restarts == 1 else "restarts"),
    ]
    blocks = [_curves(run, main, best), *_score_tables(scored), *_found(run)]
    state = "complete" if run.result else "not ended"
    title = f"Fine-tuning · {run.name}"
    return Section(
        title, f"{run.path} ({_task(run)}, {state})", numbers, [*blocks, *record_blocks(run, _validations(run))]
    )


def finetuned_comparison(runs: Sequence[RunRecord]) -> Section:
    """A table of where several runs ended."""
    rows = [_row(name, run) for name, run in zip(names(runs), runs, strict=True)]
    header = ["run", "task", "score", "dev", "test", "kept step", "steps", "time"]
    text = "The step that is kept is the best of the same development set, which flatters its score there."
    block = Block("", text, tables=[Table("Fine-tuned runs", header, rows)])
    return Section("Fine-tuned runs compared", ", ".join(str(run.path) for run in runs), (), [block])


def main_score(run: RunRecord) -> str:
    """The name of the score that decides, as far as the run tells it."""
    result = run.result or {}
    found = next((name for split in SPLITS for name in _scores(result.get(split))), None)
    return found or next(iter(_validated(run)), "score")


def best_step(run: RunRecord) -> int | None:
    """The step whose checkpoint counts; None: that is not known yet, or the last one for want of a development set."""
    found = (run.result or {}).get("best_step")
    return found if isinstance(found, int) else None


def _task(run: RunRecord) -> str:
    task = recipe_of(run).get("task")
    return str(task.get("name", "task") if isinstance(task, Mapping) else task)


def _row(name: str, run: RunRecord) -> list[str]:
    result, best = run.result or {}, best_step(run)
    of_splits = [next(iter(_scores(result.get(split)).values()), None) for split in SPLITS]
    return [
        name,
        _task(run),
        _name(main_score(run)),
        *map(decimal, of_splits),
        "–" if best is None else f"{best:,}",
        f"{run.steps[-1]['step'] if run.steps else 0:,}",
        duration(seconds(run)[-1] if run.steps else 0.0),
    ]


def _curves(run: RunRecord, main: str, best: int | None) -> Block:
    if not run.steps and not run.validations:
        return Block("", "No step has been made yet.")
    validated = [line["step"] for line in run.validations]
    steps, losses = [line["step"] for line in run.steps], [line["loss"] for line in run.steps]
    held_out = [line["validation_loss"] for line in run.validations]
    marks = ("restart", restarted_at(run))
    pictures = [
        figures.lines(
            [("training", steps, losses)], points=[("development set", validated, held_out)] if validated else [],
            title="Loss", x="step", y="nats per target", smooth=True, marks=marks,
        )
    ]  # fmt: skip
    if not validated:
        return Block("", "It has no development set: the last checkpoint counts.", pictures=pictures)
    shown = [name for name in dict.fromkeys([main, *_validated(run)]) if "/" not in name][:MOST_SCORES]
    points = [
        (_name(name), validated, [_number(line.get(f"validation_{name}"), float("nan")) for line in run.validations])
        for name in shown
    ]
    kept = ("kept", [] if best is None else [best])
    pictures.append(
        figures.lines([], points=points, title="Scores on the development set", x="step", y=_name(main), marks=kept)
    )
    return Block("", pictures=pictures)


def _score_tables(scored: Mapping[str, Mapping[str, float]]) -> Iterator[Block]:
    """All scores; those of single classes, such as f1/PER, in a table of their own."""
    whole, single = (
        [
            [name, *(decimal(scores.get(name)) for scores in scored.values())]
            for name in dict.fromkeys(name for scores in scored.values() for name in scores)
            if ("/" in name) == is_single
        ]
        for is_single in (False, True)
    )
    header = ["score", *scored]
    tables = [
        Table(caption, header, rows)
        for caption, rows in (("Scores", [[_name(row[0]), *row[1:]] for row in whole]), ("By kind", single))
        if rows
    ]
    if tables:
        yield Block("Scores", tables=tables)


def _found(run: RunRecord) -> Iterator[Block]:
    """Labels and predictions of each split."""
    for split, title in SPLITS.items():
        lines, problem = predictions(run, split)
        if problem:
            yield Block(f"Predictions for the {title}", f"None are shown: {problem}")
        elif lines:
            yield from filter(None, [label_block(f"Labels of the {title}", lines)])
            yield prediction_block(run, split, f"Predictions for the {title}", lines)
    if not run.result:
        yield Block("Predictions", "They are written when the run ends.")


def _validations(run: RunRecord) -> list[Table]:
    if not run.validations:
        return []
    columns = ["validation_loss", *(f"validation_{name}" for name in _validated(run) if "/" not in name)]
    header = ["step", *(_name(name.removeprefix("validation_")) for name in columns)]
    rows = [[f"{line['step']:,}", *(decimal(_number(line.get(name))) for name in columns)] for line in run.validations]
    return [Table("Validations", header, rows, folded=True)]


def _validated(run: RunRecord) -> list[str]:
    """The names of the scores of validations, the main one first where the lines are as they were written."""
    found = dict.fromkeys(name for line in run.validations for name in line if name.startswith("validation_"))
    return [name.removeprefix("validation_") for name in found if name not in ("validation_loss", "validation_main")]


def _scores(found: Any) -> dict[str, float]:
    """The scores of a split, without what is no number."""
    if not isinstance(found, Mapping):
        return {}
    return {str(name): float(value) for name, value in found.items() if isinstance(value, int | float)}


def _number(value: Any, default: Any = None) -> Any:
    """A number as it is: scores by any name are not checked as a file is read."""
    return value if isinstance(value, int | float) else default


def _name(score: str) -> str:
    return score.replace("_", " ")
