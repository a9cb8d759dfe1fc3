"""Some predictions of a fine-tuned run, beside what they are of and the right answers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.settings import build
from tokenfree.workflows.report.load import RunRecord
from tokenfree.workflows.report.samples.marking import bdi, text_cell
from tokenfree.workflows.report.sections.parts import Block, Table
from tokenfree.workflows.report.sections.run_section import recipe_of

NUM_SHOWN = 12
MOST_CHARACTERS = 200  # of a text

Line = Mapping[str, Any]


def predictions(run: RunRecord, split: str) -> tuple[list[Line], str]:
    """The lines of RUN/predictions for a split, none where there are none; and what is wrong with the file, or ""."""
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


def prediction_block(run: RunRecord, split: str, title: str, lines: Sequence[Line]) -> Block:
    """A table of some, evenly spaced over the file."""
    count = min(NUM_SHOWN, len(lines))
    shown = [lines[number * len(lines) // count] for number in range(count)]
    texts, missing = _texts(run, split) if any("label" in line for line in shown) else ({}, "")
    has_gold = any("gold" in line for line in shown)
    header = ["example", "text", *(["right answer"] if has_gold else []), "found"]
    rows = [
        [
            str(line["key"]),
            _text(line, texts),
            *([_answer(line, "gold")] if has_gold else []),
            _marked(line),
        ]
        for line in shown
    ]
    if not any(row[1] for row in rows):
        header, rows = [header[0], *header[2:]], [[row[0], *row[2:]] for row in rows]
    text = f"{count} of {len(lines):,}, evenly spaced and not chosen."
    return Block(title, f"{text} {missing}".strip(), tables=[Table(title, header, rows)])


def _texts(run: RunRecord, split: str) -> tuple[dict[str, Sequence[str]], str]:
    """The texts of the examples of a split by key, as the model read them; or why they are not there."""
    from tokenfree.train.config import FinetuneRecipe  # imports torch
    from tokenfree.train.loop.finetuning import content_of

    files: dict[Any, str] = {str(name): str(path) for name, path in (run.config.get("files") or {}).items()}
    path = files.get(split)
    if path is None or not all(Path(each).is_file() for each in files.values()):
        return {}, "Their texts are not in files of this machine."
    try:
        if content_of(files) != run.config.get("manifest"):
            return {}, f"Their texts are not shown: {path} or another file of the run has changed."
        with own_code.trusting((), str(run.path)):
            task = build(FinetuneRecipe, recipe_of(run), source=str(run.path)).task
        return {example.key: task.texts(example) for example in task.examples(split, path)}, ""
    except UntrustedCode as error:
        return {}, f"Their texts are not shown: a report runs no code from outside tokenfree: {', '.join(error.names)}."
    except (UserError, OSError) as error:
        return {}, f"Their texts are not shown: {error}"


def _text(line: Line, texts: Mapping[str, Sequence[str]]) -> str:
    parts = texts.get(str(line["key"]), ())
    if not parts and isinstance(line.get("words"), list):
        parts = [" ".join(map(str, line["words"]))]
    return text_cell(" ⇥ ".join(_cut(part) for part in parts)) if parts else ""


def _marked(line: Line) -> str:
    """What was found, with a tick where it is right."""
    found, gold, sure = _answer(line, "found"), line.get("gold"), line.get("probabilities")
    is_right = "gold" in line and found == _answer(line, "gold")
    if "answer" in line and isinstance(gold, list):
        is_right = line["answer"] in (gold or [""])
    if isinstance(sure, Mapping) and isinstance(share := sure.get(str(line.get("label"))), float):
        found = Markup("{} {}").format(found, f"{share:.0%}")
    return Markup("<b>✓ {}</b>").format(found) if is_right else found


def _answer(line: Line, which: str) -> str:
    """The right answer ("gold") or the one found, in short."""
    gold = line.get("gold")
    if "tags" in line:
        return bdi(_cut(_spans(line.get("words"), gold if which == "gold" else line["tags"])))
    if "answer" in line:
        if which == "gold":
            return bdi(_cut(" | ".join(map(str, gold)) if isinstance(gold, list) and gold else "no answer"))
        return bdi(_cut(str(line["answer"]) or "no answer"))
    if "label" in line:
        return bdi(_cut(str(gold if which == "gold" else line["label"])))
    if which == "gold":
        return bdi(_cut(json.dumps(gold, ensure_ascii=False)))
    kept = {name: value for name, value in line.items() if name not in ("key", "gold", "probabilities")}
    return bdi(_cut(", ".join(f"{name} {value}" for name, value in kept.items())))


def _spans(words: Any, tags: Any) -> str:
    """Spans in BIO with their words, or each word with its tag where tags are of single words."""
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


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"
