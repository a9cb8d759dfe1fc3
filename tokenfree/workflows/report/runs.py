"""Runs on the page: what pretraining and fine-tuning came to, how, and with which settings."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.settings import build
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import Curve, inline
from tokenfree.workflows.report.load import RunRecord, attempt_table, machine_line
from tokenfree.workflows.report.parts import (
    Block,
    Card,
    Section,
    Table,
    bdi,
    count,
    counted,
    cut,
    decimal,
    duration,
    flat,
    percent,
    sample,
)
from tokenfree.workflows.report.samples import Asked

SPLITS = {"dev": "development set", "test": "test set"}
MOST_SCORES = 4  # curves in one figure
MOST_LABELS, MOST_ROWS = 12, 40  # labels in the figure, and in the table
NUM_PREDICTIONS, MOST_CHARACTERS = 12, 200  # of a fine-tuned run on the page, and characters of each text
_SAME_LEVEL = 0.05  # nats: targets are equally hard if their baselines differ by less

Line = Mapping[str, Any]


def run_section(run: RunRecord, asked: Asked) -> Section:
    """Return the section of one pretraining run, ended or not."""
    blocks = []
    if run.steps or run.validations:
        blocks.append(_curves(run))
    else:
        blocks.append(Block("", "No step has been made yet."))
    if asked.examples or asked.problem:
        blocks.append(Block("", asked.problem, tables=[asked.examples] if asked.examples else []))
    rows = [
        [f"{line['step']:,}", decimal(line["validation_loss"]), percent(line.get("validation_accuracy"))]
        for line in run.validations
    ]
    validations = Table("Validations", ["step", "held-out loss", "accuracy"], rows, folded=True)
    cards = [*_context_cards(run, asked.context), *_loss_cards(run), *_training_cards(run)]
    return Section(f"Pretraining · {run.name}", _state(run), cards, [*blocks, *_record(run, validations)])


def comparison_section(runs: Sequence[RunRecord], asked: Sequence[Asked]) -> Section:
    """Return curves of several pretraining runs, a table of where they ended, and the settings in which they differ."""
    called = names(runs)
    by_characters = [_held_out(run, run.characters) for run in runs]
    drawn = [
        inline(
            figures.curves(
                [Curve(name, *each, has_marks=True) for name, each in zip(called, curve, strict=True) if each[0]],
                title=f"Held-out loss by {what}", x=what, y="nats per target",
            ),
            f"Held-out loss of each run by {what}",
        )
        for what, curve in (
            ("characters read", by_characters), ("seconds in steps", [_held_out(run, run.seconds) for run in runs])
        )
        if any(xs for xs, _ in curve)
    ]  # fmt: skip
    shared = min((xs[-1] for xs, _ in by_characters if xs), default=0.0)
    header = ["run", "below best guess", "context probe", "held-out loss", f"loss at {count(shared)} characters"]
    header += ["accuracy", "steps", "characters", "characters/s", "time", "restarts"]
    rows = []
    for name, run, each, curve in zip(called, runs, asked, by_characters, strict=True):
        last = run.validations[-1] if run.validations else {}
        margin = _margin(run, each.context)
        rows.append([
            name, "–" if margin is None else _interval(*margin), decimal(each.context.get("probe"), 2),
            decimal(last.get("validation_loss")), decimal(_at(curve, shared)), percent(last.get("validation_accuracy")),
            f"{run.done:,}", count(sum(run.characters[-1:])), count(run.speed),
            duration(sum(run.seconds[-1:])), str(run.restarts),
        ])  # fmt: skip
    text = (
        "Runs are compared by the characters that they read, as batches may differ. The second column is how far the "
        "loss on hidden targets is below the best guess without context, in nats, with its 95% interval."
    )
    levels = [level for run in runs if (level := _level(run)) is not None]
    if len({(run.result or {}).get("symbol") for run in runs} - {None}) > 1 or np.ptp(levels or [0]) > _SAME_LEVEL:
        text += " Their targets are not equally hard, so compare the second column and not the losses."
    blocks = [Block("", text, figures=drawn, tables=[Table("Runs", header, rows)]), _differences(runs, called)]
    return Section("Runs compared", ", ".join(str(run.path) for run in runs), (), blocks)


def names(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of folders, with as many folders above as it takes to tell them apart."""
    for length in range(1, max(len(run.path.parts) for run in runs) + 1):
        found = ["/".join(run.path.parts[-length:]) for run in runs]
        if len(set(found)) == len(runs):
            return found
    return [f"{run.path} ({number})" for number, run in enumerate(runs, 1)]


def _unit(run: RunRecord) -> str:
    return (run.result or {}).get("symbol") or "target"


def _state(run: RunRecord) -> str:
    return f"{run.path} ({'complete' if run.result else 'not ended'})"


def _level(run: RunRecord) -> float | None:
    """Return the lowest held-out loss on all targets without context; None if it was not counted."""
    result = run.result or {}
    baselines = result.get("baselines") or {}
    found = [baselines[name] for name in ("unigram", "clue", "copied") if name in baselines]
    return min(found) if found else result.get("unigram_entropy")  # early runs counted nothing else


def _margin(run: RunRecord, context: Mapping[str, float]) -> tuple[float, float | None, float | None] | None:
    """Return how far the loss of hidden targets is below the best guess without context, and the ends if known."""
    if "margin" in context:
        return context["margin"], context["margin_low"], context["margin_high"]
    result = run.result or {}
    baselines = result.get("baselines") or {}
    found = [baselines[name] for name in ("masked_only_unigram", "masked_only_clue") if name in baselines]
    loss = (result.get("validation_means") or {}).get("validation_masked_only_loss")
    return None if loss is None or not found else (min(found) - loss, None, None)


def _interval(margin: float, low: float | None, high: float | None) -> str:
    return f"{margin:.2f}" if low is None or high is None else f"{margin:.2f} ± {(high - low) / 2:.2f}"


def _context_cards(run: RunRecord, context: Mapping[str, float]) -> Iterator[Card]:
    """Yield whether the model uses its context, and what happens when that is hidden."""
    margin = _margin(run, context)
    if margin is None:
        return
    mean, low, high = margin
    verdict = "Yes" if (mean if low is None else low) > 0 else "Not yet"
    interval = "no interval without its data" if low is None else f"95% interval {low:.2f} to {high:.2f}"
    note = f"{abs(mean):.2f} nats per {_unit(run)} {'below' if mean > 0 else 'above'} the best guess without context"
    yield Card("Does the model use its context?", verdict, f"Loss on hidden targets: {note} ({interval}).")
    if "probe" in context:
        note = f"Rise of the loss per hidden {_unit(run)} when its context is hidden or replaced."
        yield Card("Context probe", f"{context['probe']:.2f} nats", note)


def _loss_cards(run: RunRecord) -> Iterator[Card]:
    if not run.validations:
        return
    last, level = run.validations[-1], _level(run)
    note = "" if level is None else f"Best guess without context: {level:.3f}. "
    hidden = last.get("validation_masked_only_loss")
    note += "" if hidden is None else f"Hidden targets alone: {hidden:.3f}."
    yield Card(f"Held-out loss, nats per {_unit(run)}", decimal(last["validation_loss"], 3), note.strip())
    if "validation_accuracy" in last:
        yield Card("Accuracy", percent(last["validation_accuracy"]), "Held-out targets predicted right at first.")


def _training_cards(run: RunRecord) -> Iterator[Card]:
    """Yield how far a run is and how fast it was."""
    planned = run.recipe.get("train", {}).get("steps")
    value = f"{run.done:,} of {planned:,} steps" if planned else f"{run.done:,} steps"
    yield Card("Steps", value, f"{count(sum(run.characters[-1:]))} characters in {duration(sum(run.seconds[-1:]))}.")
    note = f"Median of the steps. {counted(run.restarts, 'restart')} after a lost worker."
    yield Card("Speed", f"{count(run.speed)} characters/s", note)


def _curves(run: RunRecord) -> Block:
    steps, level = [line["step"] for line in run.steps], _level(run)
    lines = [Curve("training", steps, [line["loss"] for line in run.steps])] if steps else []
    if run.validations:
        held_out = [line["validation_loss"] for line in run.validations]
        lines.append(Curve("held out", [line["step"] for line in run.validations], held_out, has_marks=True))
    loss = figures.curves(
        lines, title="Loss", x="step", y=f"nats per {_unit(run)}", marks=_resumed(run),
        level=None if level is None else ("best guess without context", level),
    )  # fmt: skip
    drawn = [inline(loss, "Loss by step")]
    if steps:
        speed = figures.curves([Curve("", steps, run.speeds)], title="Throughput", x="step", y=figures.SPEED_NAME)
        drawn.append(inline(speed, "Characters per second by step"))
    return Block("", figures=drawn)


def _resumed(run: RunRecord) -> tuple[str, list[float]]:
    """Return a name for the steps from which the run resumed, and the steps."""
    return "resumed", [float(event.get("step") or 0) for event in run.events if event.get("event") == "resume"]


def _held_out(run: RunRecord, amounts: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the validation losses of a run over `amounts`, which has a number for each of its steps."""
    at_step = {line["step"]: amount for line, amount in zip(run.steps, amounts, strict=True)}
    lines = [line for line in run.validations if line["step"] in at_step]
    return [at_step[line["step"]] for line in lines], [line["validation_loss"] for line in lines]


def _at(curve: tuple[list[float], list[float]], x: float) -> float | None:
    """Return the loss at `x` on the straight line between two validations; None outside of the curve."""
    xs, ys = curve
    return float(np.interp(x, xs, ys)) if xs and xs[0] <= x <= xs[-1] else None


def _differences(runs: Sequence[RunRecord], called: Sequence[str]) -> Block:
    recipes = [dict(flat(run.recipe)) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    rows = [[key, *(recipe.get(key, "–") for recipe in recipes)] for key in keys]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return Block("Settings that differ", "None: the runs have the same recipe.")
    return Block("Settings that differ", tables=[Table("Only these keys", ["key", *called], rows)])


def _record(run: RunRecord, validations: Table) -> list[Block]:
    """Return the events, validations, settings and attempts of a run."""
    plain = all(event.get("event") in ("start", "complete") for event in run.events)
    header = ["time (UTC)", "event", "step", "workers", "what", "machine"]
    tables = [
        Table("Events", header, [_event(event) for event in run.events], folded=plain),
        validations,
        Table("Settings", ["key", "value"], flat(run.recipe) if run.recipe else [], folded=True),
        attempt_table(run.attempts),
    ]
    return [Block("", tables=[table for table in tables if table.rows])]


def _event(event: Line) -> list[str]:
    time, step = event.get("time"), event.get("step")
    return [
        "–" if time is None else datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        str(event.get("event", "")).replace("_", " "),
        "–" if step is None else f"{step:,}",
        str(event.get("workers") or "–"),
        str(event.get("message") or event.get("samples") or ""),
        machine_line(event["machine"]) if event.get("machine") else "",
    ]


def finetuned_section(run: RunRecord) -> Section:
    """Return the section of one fine-tuned run, ended or not."""
    result, main, best = run.result or {}, _main(run), _best_step(run)
    scored = {split: scores for split in SPLITS if (scores := _scores(result.get(split)))}
    cards = [
        Card(f"{_words(main)}, {SPLITS[split]}", decimal(next(iter(scores.values()))))
        for split, scores in scored.items()
    ]
    if not scored and run.validations:
        cards.append(Card(f"{_words(main)}, {SPLITS['dev']}, so far", decimal(_number(run.validations[-1], "main"))))
    if best is not None:
        cards.append(Card("Step kept", f"{best:,}", "The best one on the development set."))
    blocks = [_score_curves(run, main, best)]
    for caption, is_single in (("Scores", False), ("Scores by kind", True)):
        found = dict.fromkeys(name for scores in scored.values() for name in scores if ("/" in name) == is_single)
        rows = [[_words(name), *(decimal(scores.get(name)) for scores in scored.values())] for name in found]
        blocks += [Block("", tables=[Table(caption, ["score", *scored], rows)])] if rows else []
    columns = ["validation_loss", *(f"validation_{name}" for name in _validated(run) if "/" not in name)]
    header = ["step", *(_words(name.removeprefix("validation_")) for name in columns)]
    rows = [
        [f"{line['step']:,}", *(decimal(_number(line, name.removeprefix("validation_"))) for name in columns)]
        for line in run.validations
    ]
    blocks += [*_found(run), *_record(run, Table("Validations", header, rows, folded=True))]
    title = f"Fine-tuning · {run.name} ({_task(run)})"
    return Section(title, _state(run), [*cards, *_training_cards(run)], blocks)


def finetuned_comparison(runs: Sequence[RunRecord]) -> Section:
    """Return a table of where several fine-tuned runs ended."""
    rows = []
    for name, run in zip(names(runs), runs, strict=True):
        result, best = run.result or {}, _best_step(run)
        scores = [next(iter(_scores(result.get(split)).values()), None) for split in SPLITS]
        kept, time = "–" if best is None else f"{best:,}", duration(sum(run.seconds[-1:]))
        rows.append([name, _task(run), _words(_main(run)), *map(decimal, scores), kept, f"{run.done:,}", time])
    table = Table("Fine-tuned runs", ["run", "task", "score", "dev", "test", "kept step", "steps", "time"], rows)
    text = "The step kept is the best one of the development set, which flatters the score there."
    paths = ", ".join(str(run.path) for run in runs)
    return Section("Fine-tuned runs compared", paths, (), [Block("", text, tables=[table])])


def _main(run: RunRecord) -> str:
    """Return the name of the score that decides, as far as the run tells it."""
    result = run.result or {}
    found = next((name for split in SPLITS for name in _scores(result.get(split))), None)
    return found or next(iter(_validated(run)), "score")


def _best_step(run: RunRecord) -> int | None:
    """Return the step whose checkpoint counts; None if it is not known, or is the last one."""
    found = (run.result or {}).get("best_step")
    return found if isinstance(found, int) else None


def _task(run: RunRecord) -> str:
    task = run.recipe.get("task")
    return str(task.get("name", "task") if isinstance(task, Mapping) else task)


def _score_curves(run: RunRecord, main: str, best: int | None) -> Block:
    if not run.steps and not run.validations:
        return Block("", "No step has been made yet.")
    steps = [line["step"] for line in run.validations]
    lines = [Curve("training", [line["step"] for line in run.steps], [line["loss"] for line in run.steps])]
    if steps:
        lines.append(Curve("development set", steps, [line["validation_loss"] for line in run.validations], True))
    loss = figures.curves(lines, title="Loss", x="step", y="nats per target", marks=_resumed(run))
    drawn = [inline(loss, "Loss by step")]
    if not steps:
        return Block("", "It has no development set: the last checkpoint counts.", figures=drawn)
    shown = [name for name in dict.fromkeys([main, *_validated(run)]) if "/" not in name][:MOST_SCORES]
    scores = [
        Curve(_words(name), steps, [_number(line, name, float("nan")) for line in run.validations], True)
        for name in shown
    ]
    marks = ("step kept", [] if best is None else [best])
    figure = figures.curves(scores, title="Scores on the development set", x="step", y=_words(main), marks=marks)
    return Block("", figures=[*drawn, inline(figure, "Scores by step")])


def _validated(run: RunRecord) -> list[str]:
    """Return the names of the scores of validations, the main one first where the lines are as they were written."""
    found = dict.fromkeys(name for line in run.validations for name in line if name.startswith("validation_"))
    return [name.removeprefix("validation_") for name in found if name not in ("validation_loss", "validation_main")]


def _scores(found: Any) -> dict[str, float]:
    """Return the scores of a split, without what is no number."""
    if not isinstance(found, Mapping):
        return {}
    return {str(name): float(value) for name, value in found.items() if isinstance(value, int | float)}


def _number(line: Line, name: str, default: Any = None) -> Any:
    """Return a score of a validation: those of any name are not checked as a file is read."""
    value = line.get(f"validation_{name}")
    return value if isinstance(value, int | float) else default


def _words(score: str) -> str:
    return score.replace("_", " ")


def _found(run: RunRecord) -> Iterator[Block]:
    """Yield the labels and predictions of each split."""
    any_found = False
    for split, words in SPLITS.items():
        lines, problem = read_predictions(run, split)
        any_found |= bool(lines or problem)
        if problem:
            yield Block(f"Predictions for the {words}", problem)
        if lines:
            block = label_block(f"Labels in the {words}", lines)
            yield from [block] if block else []
            yield prediction_block(run, split, f"Predictions for the {words}", lines)
    if not any_found and not run.result:
        yield Block("Predictions", "They are written when the run ends.")


def read_predictions(run: RunRecord, split: str) -> tuple[list[Line], str]:
    """Return the lines of RUN/predictions for a split, and what is wrong with the file."""
    path = run.path / "predictions" / f"{split}.jsonl"
    if not path.is_file():
        return [], ""
    lines: list[Line] = []
    try:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = json.loads(text)
            if not isinstance(line, dict) or "key" not in line:
                raise ValueError(f"line {number} is no prediction")
            lines.append(line)
    except (ValueError, RecursionError, OSError) as error:
        return [], f"{path} is damaged: {error}"
    return lines, ""


def label_block(title: str, lines: Sequence[Line]) -> Block | None:
    """Return which labels were found and confused; None of predictions that are no labels, or have no right ones."""
    pairs = [pair for line in lines for pair in _label_pairs(line)]
    if not pairs or any(not isinstance(label, str) for pair in pairs for label in pair):
        return None
    gold, found = zip(*pairs, strict=True)
    labels = sorted({*gold, *found})
    counts = confusion_matrix(gold, found, labels=labels)
    scores = precision_recall_fscore_support(gold, found, labels=labels, zero_division=0)[:3]  # pyright: ignore
    rows = [
        [labels[at], f"{counts[at].sum():,}", f"{counts[:, at].sum():,}"]
        + [f"{np.asarray(each)[at]:.3f}" for each in scores]
        for at in np.argsort(-counts.sum(axis=1), kind="stable")[:MOST_ROWS]
    ]
    caption = "Labels" if len(labels) <= MOST_ROWS else f"The {MOST_ROWS} most frequent of {len(labels)} labels"
    table = Table(caption, ["label", "examples", "found", "precision", "recall", "F1"], rows)
    drawn = [inline(figures.confusion(counts, labels), "Right and found labels")] if len(labels) <= MOST_LABELS else []
    return Block(title, figures=drawn, tables=[table])


def _label_pairs(line: Line) -> list[tuple[Any, Any]]:
    """Return the right label and the one found, of each word where words have tags."""
    gold, tags = line.get("gold"), line.get("tags")
    if "label" in line and "gold" in line:
        return [(gold, line["label"])]
    if isinstance(tags, list) and isinstance(gold, list) and len(tags) == len(gold):
        return list(zip(gold, tags, strict=True))
    return []


def prediction_block(run: RunRecord, split: str, title: str, lines: Sequence[Line]) -> Block:
    """Return a table of some predictions, evenly spaced over the file, next to the right answers."""
    number = min(NUM_PREDICTIONS, len(lines))
    shown = [lines[index * len(lines) // number] for index in range(number)]
    texts, missing = _texts(run, split) if any("label" in line for line in shown) else ({}, "")
    rows = [[str(line["key"]), _text(line, texts), _answer(line, "gold"), _marked(line)] for line in shown]
    asked = (True, any(row[1] for row in rows), any("gold" in line for line in shown), True)
    kept = [column for column, is_shown in enumerate(asked) if is_shown]
    header = ["example", "text", "right answer", "found"]
    table = Table(title, [header[column] for column in kept], [[row[column] for column in kept] for row in rows])
    return Block(title, f"{number} of {len(lines):,}, evenly spaced and not chosen. {missing}".strip(), tables=[table])


def _texts(run: RunRecord, split: str) -> tuple[dict[str, Sequence[str]], str]:
    """Return the texts of the examples of a split by key, as the model read them; or why they are not there."""
    from tokenfree.train.config import FinetuneRecipe  # imports torch
    from tokenfree.train.loop.finetuning import content_of

    files: dict[Any, str] = {str(name): str(path) for name, path in (run.config.get("files") or {}).items()}
    path = files.get(split)
    if path is None or not all(Path(each).is_file() for each in files.values()):
        return {}, "Their texts are not in files of this machine."
    try:
        if content_of(files) != run.config.get("manifest"):
            return {}, f"Their texts are not shown: {path} or another file of the run has changed."
        with own_code.trusting(False, str(run.path)):
            task = build(FinetuneRecipe, run.recipe, source=str(run.path)).task
        return {example.key: task.texts(example) for example in task.examples(split, path)}, ""
    except UntrustedCode as error:
        return {}, f"Their texts are not shown: a report runs no code from outside tokenfree: {', '.join(error.names)}."
    except (UserError, OSError) as error:
        return {}, f"Their texts are not shown: {error}"


def _text(line: Line, texts: Mapping[str, Sequence[str]]) -> str:
    parts = texts.get(str(line["key"]), ())
    if not parts and isinstance(line.get("words"), list):
        parts = [" ".join(map(str, line["words"]))]
    return sample(" ⇥ ".join(cut(part, MOST_CHARACTERS) for part in parts)) if parts else ""


def _marked(line: Line) -> str:
    """Return what was found, with a tick where it is right."""
    found, gold, sure = _answer(line, "found"), line.get("gold"), line.get("probabilities")
    is_right = "gold" in line and found == _answer(line, "gold")
    if "answer" in line and isinstance(gold, list):
        is_right = line["answer"] in (gold or [""])
    if isinstance(sure, Mapping) and isinstance(share := sure.get(str(line.get("label"))), float):
        found = Markup("{} {}").format(found, f"{share:.0%}")
    return Markup("<b>✓ {}</b>").format(found) if is_right else found


def _answer(line: Line, which: str) -> str:
    """Return the right answer ("gold") or the one found, in short."""
    gold = line.get("gold")
    if "tags" in line:
        text = _spans(line.get("words"), gold if which == "gold" else line["tags"])
    elif "answer" in line and which == "gold":
        text = " | ".join(map(str, gold)) if isinstance(gold, list) and gold else "no answer"
    elif "answer" in line:
        text = str(line["answer"]) or "no answer"
    elif "label" in line:
        text = str(gold if which == "gold" else line["label"])
    elif which == "gold":
        text = json.dumps(gold, ensure_ascii=False)
    else:
        kept = {name: value for name, value in line.items() if name not in ("key", "gold", "probabilities")}
        text = ", ".join(f"{name} {value}" for name, value in kept.items())
    return bdi(cut(text, MOST_CHARACTERS))


def _spans(words: Any, tags: Any) -> str:
    """Return spans in BIO with their words, or each word with its tag where tags are of single words."""
    if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
        return ""
    pairs = [(str(word), str(tag)) for word, tag in zip(words, tags, strict=True)]
    if not all(tag == "O" or tag[:2] in ("B-", "I-") for _, tag in pairs):
        return " ".join(f"{word}/{tag}" for word, tag in pairs)
    found: list[tuple[str, list[str]]] = []
    before = "O"
    for word, tag in pairs:
        if tag != "O":
            if tag.startswith("B-") or before[2:] != tag[2:]:
                found.append((tag[2:], []))
            found[-1][1].append(word)
        before = tag
    return ", ".join(f"{label}: {' '.join(part)}" for label, part in found) or "nothing"
