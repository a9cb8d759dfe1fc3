"""Sections of runs: use of context, predictions, results, curves and settings of pretraining and fine-tuning."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from sklearn.metrics import precision_recall_fscore_support

from tokenfree.core import own_code
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.settings import build
from tokenfree.core.settings_values import flatten
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader, as_data, load_data_manifest, paths_of
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.predictor import LONGEST, Guess, MaskedText, Predictor, predictor_of
from tokenfree.train.loop.finetuning import content_of
from tokenfree.train.runs.formats import main_baselines
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import Curve, inline
from tokenfree.workflows.report.load import Line, RunRecord, attempt_table, machine_line, predictions, state
from tokenfree.workflows.report.parts import (
    Block,
    Card,
    Section,
    Table,
    baseline_note,
    bdi,
    count,
    cut,
    decimal,
    duration,
    percent,
    plus_minus,
    settings_table,
)
from tokenfree.workflows.terminal.results import counted, margin_text

EXAMPLES, TOP = 5, 3  # predictions on the page, and the best answers of each
AROUND = 60  # characters shown before and after the hidden word
_MAX_CHARACTERS = 2**16  # characters to evaluate a run on: seconds for a small model, minutes for a large one


class Predictions(NamedTuple):
    """Results of the evaluation and the predictions of a model."""

    # `margin` with its ends and `probe` of `train.evaluate.evaluate`, if known.
    context: Mapping[str, float] = {}
    examples: Sequence[Table] = ()  # at most one table of predictions
    problem: str = ""  # why there are no predictions, or which checkpoints are damaged


def _data_of(fingerprint: str, recorded: Data | None, data_by_fingerprint: Mapping[str, Data]) -> Data | None:
    if fingerprint in data_by_fingerprint:
        return data_by_fingerprint[fingerprint]
    if recorded is None or not all((Path(path) / "manifest.json").is_file() for path in paths_of(recorded)):
        return None
    try:
        return recorded if load_data_manifest(recorded).fingerprint == fingerprint else None
    except UserError:
        return None


def predict_held_out(
    run: RunRecord,
    data_by_fingerprint: Mapping[str, Data],
    *,
    context: Mapping[str, float] | None,
    step: int | None,
) -> Predictions:
    """Evaluate the model of a pretraining run, unless its `context` is known, and predict words of held-out windows.

    The result is empty for imported runs and for runs without checkpoints. `known` has data directories by
    the fingerprint of their manifest, and `context` results of `evaluate`. Raises UserError if there is no
    checkpoint of `step`, and JobError if it is damaged.
    """
    config, folder = run.config, str(run.path)
    if (
        not config.get("manifest")
        or "recipe" not in config
        or not any((run.path / "checkpoints").glob("step_*"))
    ):
        return Predictions()
    recorded = as_data(config["data"]) if "data" in config else None
    data = _data_of(config["manifest"], recorded, data_by_fingerprint)
    if data is None:
        where = f"its data are not in {recorded}. Give their directory to tokenfree report too"
        return Predictions(problem=f"No predictions: {where}.")
    checkpoint = checkpoint_of(run.path, step)
    try:
        with own_code.trusting(False, folder):
            recipe = build(PretrainRecipe, config["recipe"], source=folder)
        if context is None:
            num_windows = min(
                recipe.train.validation_windows, max(16, _MAX_CHARACTERS // (recipe.train.length or 1))
            )
            context = evaluate(folder, data, num_windows=num_windows, step=checkpoint.step)
        predictor = predictor_of(checkpoint, recipe, data)
        rows = [_example(predictor, *window) for window in _windows(predictor, data)]
    except UntrustedCode as error:
        reason = f"a report runs no code from outside tokenfree, and this run names {', '.join(error.names)}"
        return Predictions(problem=f"No predictions: {reason}.")
    except (UserError, JobError, OSError) as error:
        return Predictions(context or {}, problem=f"No predictions: {error}")
    if not rows:
        return Predictions(
            context, problem="No predictions: no held-out window has a word that is one piece."
        )
    right = sum("<b>" in row[2] for row in rows)
    caption = f"Step {checkpoint.step:,}: {right} of {len(rows)} example predictions right at first (✓)"
    table = Table(caption, ["text", "hidden", "first", "second", "third"], rows)
    return Predictions(context, [table], " ".join(f"{message}." for message in checkpoint.damaged))


def _windows(predictor: Predictor, data: Data) -> Iterator[tuple[str, str, str]]:
    """Yield evenly spaced held-out windows, split at the middle one of those words that are single pieces."""
    reader = ShardReader(data, "validation")
    _, shards, rows = reader.spread(4 * EXAMPLES)
    pieces = None if predictor.vocabulary is None else set(predictor.vocabulary.pieces)
    left = EXAMPLES
    for encoded in map(np.ndarray.tobytes, reader.rows(["text"], shards, rows)["text"]):
        spans = zip(*(edges.tolist() for edges in word_spans(encoded.decode())), strict=True)
        words = [(start, end, encoded[start:end].decode()) for start, end in spans]
        candidates = [
            (start, end, word)
            for start, end, word in words
            if word.isalpha() and 1 < len(word) <= LONGEST and (pieces is None or f"▁{word}" in pieces)
        ]
        if candidates and left:
            left -= 1
            start, end, word = candidates[len(candidates) // 2]
            yield encoded[:start].decode(), word, encoded[end:].decode()


def _example(predictor: Predictor, prefix: str, answer: str, suffix: str) -> list[str]:
    """Return the table row of an example: text, hidden word and best predictions, with correct ones marked."""
    # Characters of one bucket are the same to it.
    buckets = getattr(predictor.recipe.objective, "buckets", 0x110000)

    def classes(text: str) -> list[int]:
        return [ord(character) % buckets for character in text.lstrip("▁")]

    cells = []
    for text, probability in _predicted(predictor, prefix, answer, suffix):
        form = "<b>✓ {} {}</b>" if classes(text) == classes(answer) else "{} {}"
        cells.append(Markup(form).format(bdi(text), f"{probability:.0%}"))
    cut_prefix = prefix if len(prefix) <= AROUND else "…" + prefix[-AROUND:]
    rest = suffix if len(suffix) <= AROUND else suffix[:AROUND] + "…"
    line = Markup('<span class="sample" dir="auto">{}<mark>█</mark>{}</span>')
    sample = line.format(cut_prefix.replace("\n", "⏎ "), rest.replace("\n", "⏎ "))
    return [sample, bdi(answer), *cells, *["–"] * (TOP - len(cells))]


def _predicted(predictor: Predictor, prefix: str, answer: str, suffix: str) -> Sequence[Guess]:
    """Return the best predictions. The context is halved until it fits into the model."""
    size = None if predictor.recipe.objective.name in ("masked_subwords", "byte2word") else len(answer)
    reach = max(len(prefix), len(suffix))
    while True:
        parts = prefix[max(len(prefix) - reach, 0) :], suffix[:reach]
        try:
            return predictor(MaskedText(parts, (size,)), TOP)[0]
        except UserError:
            if not reach:
                raise
            reach //= 2


SPLITS = {"dev": "development set", "test": "test set"}
MAX_SCORES = 4  # curves in one figure
MAX_ROWS = 40  # labels in the table
_SAME_LEVEL = 0.05  # nats; below this difference of baselines, targets count as equally hard


def run_section(run: RunRecord, asked: Predictions) -> Section:
    curves = _curves(run) if run.steps or run.validations else Block(text="No step has been made yet.")
    blocks = [curves, Block(text=asked.problem, tables=asked.examples), _record(run)]
    cards = [*_context_cards(run, asked.context), *_loss_cards(run, asked.context), *_training_cards(run)]
    return Section(f"Pretraining · {run.path.name}", state(run, bool(run.result)), cards, blocks)


def comparison_section(runs: Sequence[RunRecord], asked: Sequence[Predictions]) -> Section:
    """Return the section that compares pretraining runs by the characters they read, because batches may differ."""
    called = [str(run.path) for run in runs]
    by_characters = [_held_out(run, run.characters) for run in runs]
    by_seconds = [_held_out(run, run.seconds) for run in runs]
    drawn = []
    for what, points in (("characters read", by_characters), ("seconds in steps", by_seconds)):
        lines = [
            Curve(name, xs, ys, has_marks=True) for name, (xs, ys) in zip(called, points, strict=True) if xs
        ]
        if lines:
            title = f"Held-out loss by {what}"
            drawn.append(inline(figures.curves(lines, title=title, x=what, y="nats per target"), title))
    shared = min((xs[-1] for xs, _ in by_characters if xs), default=0.0)
    header = [
        "run",
        "below best guess",
        "context probe",
        "held-out loss",
        f"loss at {count(shared)} characters",
        "accuracy",
        "step of margin",
        "step of loss",
        "steps",
        "characters",
        "characters/s",
        "time",
        "restarts",
    ]
    rows = []
    for name, run, prediction, (xs, ys) in zip(called, runs, asked, by_characters, strict=True):
        last = _last_validation(run, prediction.context)
        at_shared = float(np.interp(shared, xs, ys)) if xs and xs[0] <= shared else None
        mean, low, high = _margin(run, prediction.context) or (None, None, None)
        half = None if low is None or high is None else (high - low) / 2
        rows.append([
            name, plus_minus(mean, half, 2), decimal(prediction.context.get("probe"), 2),
            decimal(last.get("validation_loss")), decimal(at_shared), percent(last.get("validation_accuracy")),
            _step(None if mean is None else prediction.context.get("step", run.num_steps)), _step(last.get("step")),
            f"{run.num_steps:,}", count(sum(run.characters[-1:])), count(run.median_speed),
            duration(sum(run.seconds[-1:])), str(run.restarts),
        ])  # fmt: skip
    levels = [level for run in runs if (level := _level(run)) is not None]
    is_unequal = (
        len({run.result.get("symbol") for run in runs} - {None}) > 1 or np.ptp(levels or [0]) > _SAME_LEVEL
    )
    text = "Targets of these runs are not equally hard: compare how far each is below its best guess."
    recipes = [dict(flatten(run.recipe)) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    cells = [[key, *(str(recipe.get(key, "–")) for recipe in recipes)] for key in keys]
    differing = Table(
        "Settings that differ", ["key", *called], [row for row in cells if len(set(row[1:])) > 1]
    )
    block = Block(
        text=text if is_unequal else "", figures=drawn, tables=[Table("Runs", header, rows), differing]
    )
    return Section("Runs compared", counted(len(runs), "run"), (), [block])


def _unit(run: RunRecord) -> str:
    return run.result.get("symbol") or "target"


def _level(run: RunRecord) -> float | None:
    baselines = run.result.get("baselines") or {}
    baseline_losses = [baselines[name] for name in ("unigram", "clue", "copied") if name in baselines]
    # All that early runs have.
    return min(baseline_losses) if baseline_losses else run.result.get("unigram_entropy")


def _margin(run: RunRecord, context: Mapping[str, float]) -> tuple[float, float | None, float | None] | None:
    """Return how far the loss on hidden targets is below the context-free baseline, and the interval's ends or None."""
    if "margin" in context:
        return context["margin"], context.get("margin_low"), context.get("margin_high")
    baselines = run.result.get("baselines") or {}
    baseline_losses = [
        baselines[name] for name in ("masked_only_unigram", "masked_only_clue") if name in baselines
    ]
    loss = (run.result.get("validation_means") or {}).get("validation_masked_only_loss")
    return None if loss is None or not baseline_losses else (min(baseline_losses) - loss, None, None)


def _step(step: float | None) -> str:
    return "–" if step is None else f"{step:,}"


def _last_validation(run: RunRecord, context: Mapping[str, float]) -> Line:
    last = context.get("step", np.inf)
    return next((line for line in reversed(run.validations) if line["step"] <= last), {})


def _context_cards(run: RunRecord, context: Mapping[str, float]) -> Iterator[Card]:
    margin = _margin(run, context)
    if margin is None:
        return
    step = _step(context.get("step", run.num_steps))
    verdict = "Yes" if (context.get("margin_low", 0) if context else margin[0]) > 0 else "Not yet"
    below = f"{margin_text(*margin, f' per {_unit(run)}')} the best guess without context"
    note = f"Loss on hidden targets at step {step}: {below}."
    if not context:
        note += " No interval without its data."
    yield Card("Does the model use its context?", verdict, note)
    if "probe" in context:
        note = (
            f"Rise of the loss per hidden {_unit(run)} at step {step} when its context is hidden or replaced."
        )
        yield Card("Context probe", f"{decimal(context['probe'], 2)} nats", note)


def _loss_cards(run: RunRecord, context: Mapping[str, float]) -> Iterator[Card]:
    last, level = _last_validation(run, context), _level(run)
    if not last:
        return
    note = f"At step {_step(last['step'])}. " + (
        "" if level is None else f"Best guess without context: {level:.3f}. "
    )
    hidden = last.get("validation_masked_only_loss")
    note += "" if hidden is None else f"Hidden targets alone: {hidden:.3f}."
    yield Card(f"Held-out loss, nats per {_unit(run)}", decimal(last["validation_loss"], 3), note.strip())
    if "validation_accuracy" in last:
        note = f"Held-out targets predicted right at first, at step {_step(last['step'])}."
        yield Card("Accuracy", percent(last["validation_accuracy"]), note)


def _training_cards(run: RunRecord) -> Iterator[Card]:
    planned = run.recipe.get("train", {}).get("steps")
    value = f"{run.num_steps:,} of {planned:,} steps" if planned else f"{run.num_steps:,} steps"
    yield Card(
        "Steps", value, f"{count(sum(run.characters[-1:]))} characters in {duration(sum(run.seconds[-1:]))}."
    )
    note = f"Median of the steps. {counted(run.restarts, 'restart')} after a lost worker."
    yield Card("Speed", f"{count(run.median_speed)} characters/s", note)


def _curves(run: RunRecord) -> Block:
    drawn = [_loss_figure(run, f"nats per {_unit(run)}", "held out", _level(run))]
    if run.steps:
        steps = [line["step"] for line in run.steps]
        speed = figures.curves(
            [Curve("", steps, run.speeds)], title="Throughput", x="step", y=figures.SPEED_NAME
        )
        drawn.append(inline(speed, "Characters per second by step"))
    return Block(figures=drawn)


def _loss_figure(run: RunRecord, y: str, held_out: str, level: float | None = None) -> Markup:
    steps = [line["step"] for line in run.validations]
    lines = [
        Curve("training", [line["step"] for line in run.steps], [line["loss"] for line in run.steps]),
        Curve(held_out, steps, [line["validation_loss"] for line in run.validations], has_marks=True),
    ]
    resumed = [float(event.get("step") or 0) for event in run.events if event.get("event") == "resume"]
    figure = figures.curves(
        [line for line in lines if len(line.xs)], title="Loss", x="step", y=y, marks=("resumed", resumed),
        level=None if level is None else ("best guess without context", level),
    )  # fmt: skip
    return inline(figure, "Loss by step")


def _held_out(run: RunRecord, amounts: Sequence[float]) -> tuple[list[float], list[float]]:
    at_step = {line["step"]: amount for line, amount in zip(run.steps, amounts, strict=True)}
    lines = [line for line in run.validations if line["step"] in at_step]
    return [at_step[line["step"]] for line in lines], [line["validation_loss"] for line in lines]


def _record(run: RunRecord) -> Block:
    is_plain = all(event.get("event") in ("start", "complete") for event in run.events)
    header = ["time (UTC)", "event", "step", "workers", "what", "machine"]
    events = Table("Events", header, [_event(event) for event in run.events], folded=is_plain)
    return Block(tables=[events, settings_table("Settings", run.recipe), attempt_table(run.attempts)])


def _event(event: Line) -> list[str]:
    time, step = event.get("time"), event.get("step")
    return [
        "–" if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        str(event.get("event", "")).replace("_", " "),
        "–" if step is None else f"{step:,}",
        str(event.get("workers") or "–"),
        str(event.get("message") or event.get("samples") or ""),
        machine_line(event["machine"]) if event.get("machine") else "",
    ]


def finetuned_section(run: RunRecord) -> Section:
    main, best = _main(run), run.result.get("best_step")
    scored = {split: scores for split in SPLITS if (scores := _scores(run.result.get(split)))}
    step = run.result.get("steps") if best is None else best
    only = run.result.get("only_label") or {}
    cards = []
    for split, scores in scored.items():
        note = f"At step {_step(step)}.{baseline_note(main_baselines(run.result, split))}"
        note += f" The model predicts one label only: {only[split]}." if split in only else ""
        cards.append(Card(f"{_words(main)}, {SPLITS[split]}", decimal(next(iter(scores.values()))), note))
    if not scored and run.validations:
        last = run.validations[-1]
        note = f"At step {_step(last['step'])}."
        cards.append(Card(f"{_words(main)}, {SPLITS['dev']}, so far", decimal(_number(last, "main")), note))
    if best is not None:
        cards.append(Card("Step kept", f"{best:,}", "The best one on the development set."))
    blocks = [_score_curves(run, main)]
    names = dict.fromkeys(name for scores in scored.values() for name in scores)
    rows = [[_words(name), *(decimal(scores.get(name)) for scores in scored.values())] for name in names]
    compared = {split: main_baselines(run.result, split) for split in scored}
    rows += [
        [f"{_words(main)}, {name}", *(decimal(of_split.get(name)) for of_split in compared.values())]
        for name in dict.fromkeys(name for of_split in compared.values() for name in of_split)
    ]
    blocks.append(
        Block(tables=[Table(f"Scores at step {_step(step)}, and baselines", ["score", *scored], rows)])
    )
    lines = {split: predictions(run, split) for split in SPLITS}
    shown = "test" if lines["test"] else "dev"
    blocks += [
        *(label_block(f"Labels in the {words}", lines[split]) for split, words in SPLITS.items()),
        prediction_block(f"Predictions in the {SPLITS[shown]}", lines[shown], _texts(run, shown)),
        _record(run),
    ]
    title = f"Fine-tuning · {run.path.name} ({_task(run)})"
    return Section(title, state(run, bool(run.result)), [*cards, *_training_cards(run)], blocks)


def finetuned_comparison(runs: Sequence[RunRecord]) -> Section:
    rows = []
    for run in runs:
        best = run.result.get("best_step")
        scores = [next(iter(_scores(run.result.get(split)).values()), None) for split in SPLITS]
        baselines = [max(main_baselines(run.result, split).values(), default=None) for split in SPLITS]
        numbers = map(decimal, itertools.chain.from_iterable(zip(scores, baselines, strict=True)))
        kept, time = _step(run.result.get("steps") if best is None else best), duration(sum(run.seconds[-1:]))
        rows.append(
            [str(run.path), _task(run), _words(_main(run)), *numbers, kept, f"{run.num_steps:,}", time]
        )
    header = ["run", "task", "score", "dev", "baseline", "test", "baseline", "at step", "steps", "time"]
    table = Table("Fine-tuned runs", header, rows)
    return Section("Fine-tuned runs compared", counted(len(runs), "run"), (), [Block(tables=[table])])


def _main(run: RunRecord) -> str:
    """Return the name of the main score. Before the run has results, its validations are used."""
    score_name = next((name for split in SPLITS for name in _scores(run.result.get(split))), None)
    return score_name or next(iter(_validated(run)), "score")


def _task(run: RunRecord) -> str:
    task = run.recipe.get("task")
    return str(task.get("name", "task") if isinstance(task, Mapping) else task)


def _score_curves(run: RunRecord, main: str) -> Block:
    if not run.steps and not run.validations:
        return Block(text="No step has been made yet.")
    drawn = [_loss_figure(run, "nats per target", "development set")]
    if not run.validations:
        return Block(text="It has no development set: the last checkpoint counts.", figures=drawn)
    steps, best = [line["step"] for line in run.validations], run.result.get("best_step")
    names = [name for name in dict.fromkeys([main, *_validated(run)]) if "/" not in name][:MAX_SCORES]
    scores = [
        Curve(_words(name), steps, [_number(line, name, float("nan")) for line in run.validations], True)
        for name in names
    ]
    marks = ("step kept", [] if best is None else [best])
    figure = figures.curves(
        scores, title="Scores on the development set", x="step", y=_words(main), marks=marks
    )
    return Block(figures=[*drawn, inline(figure, "Scores by step")])


def _validated(run: RunRecord) -> list[str]:
    names = dict.fromkeys(name for line in run.validations for name in line if name.startswith("validation_"))
    return [
        name.removeprefix("validation_")
        for name in names
        if name not in ("validation_loss", "validation_main")
    ]


def _scores(record: Any) -> dict[str, float]:
    if not isinstance(record, Mapping):
        return {}
    return {str(name): float(value) for name, value in record.items() if isinstance(value, int | float)}


def _number(line: Line, name: str, default: Any = None) -> Any:
    """Return a validation score or the default.

    Scores may have any name, so loading does not check their types.
    """
    value = line.get(f"validation_{name}")
    return value if isinstance(value, int | float) else default


def _words(score: str) -> str:
    return score.replace("_", " ")


def label_block(title: str, lines: Sequence[Line]) -> Block:
    pairs = [pair for line in lines for pair in _label_pairs(line)]
    if not pairs or any(not isinstance(label, str) for pair in pairs for label in pair):
        return Block()
    gold, predicted = zip(*pairs, strict=True)
    labels = sorted({*gold, *predicted})
    options: Any = {"labels": labels, "zero_division": 0}
    *scores, counts = map(np.asarray, precision_recall_fscore_support(gold, predicted, **options))
    rows = [
        [
            labels[at],
            f"{counts[at]:,}",
            f"{predicted.count(labels[at]):,}",
            *(f"{score[at]:.3f}" for score in scores),
        ]
        for at in np.argsort(-counts, kind="stable")[:MAX_ROWS]
    ]
    caption = "Labels" if len(labels) <= MAX_ROWS else f"The {MAX_ROWS} most frequent of {len(labels)} labels"
    table = Table(caption, ["label", "examples", "found", "precision", "recall", "F1"], rows)
    return Block(title, tables=[table])


def prediction_block(title: str, lines: Sequence[Line], texts: Mapping[str, str]) -> Block:
    """Return right and wrong predictions next to the correct answers, evenly spaced over the lines of each kind.

    Args:
        title: Heading.
        lines: Predictions of a split.
        texts: Texts of its examples by key, as far as they are known.
    """
    answered = [(line, *_answers(line)) for line in lines]
    rows = []
    for is_right, form in ((True, "<b>✓ {}</b>"), (False, "{}")):
        of_kind = [entry for entry in answered if entry[1] and (entry[1] == entry[2]) == is_right]
        for line, *answers in of_kind[:: max(1, len(of_kind) // EXAMPLES)][:EXAMPLES]:
            *cells, predicted = (
                bdi(cut(text, 2 * AROUND)) for text in (line["key"], texts.get(line["key"], ""), *answers)
            )
            rows.append([*cells, Markup(form).format(predicted)])
    table = Table("Right (✓) and wrong predictions", ["example", "text", "correct", "predicted"], rows)
    return Block(title if rows else "", tables=[table])


def _answers(line: Line) -> tuple[str, ...]:
    """Return the correct and the predicted answer of an example as text; empty texts if it has none."""
    answer, gold, words = (line.get(name) for name in ("answer", "gold", "words"))
    if isinstance(answer, str) and isinstance(gold, list):
        return tuple(
            text or "no answer" for text in (answer if answer in gold else f"{[*gold, ''][0]}", answer)
        )
    pairs = [pair for pair in _label_pairs(line) if all(isinstance(label, str) for label in pair)]
    if not isinstance(words, list):
        return pairs[0] if pairs else ("", "")
    return tuple(
        " ".join(f"{word}/{label}".removesuffix("/O") for word, label in zip(words, labels, strict=False))
        for labels in (zip(*pairs, strict=True) if pairs else ("", ""))
    )


def _texts(run: RunRecord, split: str) -> Mapping[str, str]:
    """Return the texts of a split by key; none if its file is not on this machine or has changed."""
    files, content = run.config.get("files") or {}, run.config.get("manifest")
    with contextlib.suppress(UserError, OSError), own_code.trusting(False, str(run.path)):
        if all(Path(path).is_file() for path in files.values()) and content_of(files) == content:
            task = build(FinetuneRecipe, run.recipe, source=str(run.path)).task
            return {
                example.key: " ⇥ ".join(task.texts(example)) for example in task.examples(split, files[split])
            }
    return {}


def _label_pairs(line: Line) -> list[tuple[Any, Any]]:
    """Return (correct label, predicted label) of an example, or of each word if words have tags."""
    gold, tags = line.get("gold"), line.get("tags")
    if "label" in line and "gold" in line:
        return [(gold, line["label"])]
    if isinstance(tags, list) and isinstance(gold, list) and len(tags) == len(gold):
        return list(zip(gold, tags, strict=True))
    return []
