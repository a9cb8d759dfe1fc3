"""A program for the card of a fine-tuned model's graph: from texts to labels, numbers, tags or answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.onnx.card import WORD_ARRAYS
from tokenfree.train.onnx.facts import num_texts
from tokenfree.train.onnx.task_graph import REMEDY, AnswerGraph, TagGraph, TaskGraph

PROGRAM = """\
```python
{imports}

session = onnxruntime.InferenceSession("this folder/model.onnx")
{parts}
```"""
LABELS = 'labels = json.load(open("this folder/config.json", encoding="utf-8"))["labels"]'
SYMBOLS = {
    "characters": """\
CLS, SEP = 0xE000, 0xE001


def symbols(text):
    return [*map(ord, text)]

""",
    "bytes": """\
CLS, SEP = 2, 3


def symbols(text):
    return [*text.encode()]

""",
    "words": """\
CLS, SEP = b"\\x02", b"\\x03"


def symbols(text):  # its words
    return [text.encode()[start:end] for start, end in zip(*word_spans(text), strict=True)]

""",
}
TEXTS = """\
texts = ["any text", "日本語"]
rows = [[CLS, *symbols(text), SEP] for text in texts]"""
SENTENCES = """\
sentences = [["Ana", "saw", "Rome", "."], ["日本"]]
rows = [[CLS, *symbols(" ".join(words)), SEP] for words in sentences]"""
PAIRS = """\
pairs = [{examples}]
rows = [[CLS, *symbols(first), SEP, *symbols(second), SEP] for first, second in pairs]"""
PAIR_EXAMPLES = '("any text", "its second text"), ("日本語", "日本")'
QUESTION_EXAMPLES = '("Who saw Rome?", "Ana saw Rome."), ("Who?", "Bo.")'
SYMBOL_ARRAYS = """\
length = min(-(-(max(map(len, rows)) + {spare}) // {whole}) * {whole}, {length})
codepoints = np.zeros((len(rows), length), dtype=np.int64)
mask = np.zeros(codepoints.shape, dtype=bool)
for number, row in enumerate(rows):
    codepoints[number, : len(row)], mask[number, : len(row)] = row, True
inputs = {{"codepoints": codepoints, "mask": mask}}"""
SEGMENTS = """\
seconds = np.array([len({of_first}) + 2 for first, _ in pairs])  # where the second texts begin
inputs["segments"] = (mask & (np.arange(length) >= seconds[:, None])).astype(np.int64)"""
SUBWORDS = """\
ids = np.array([[{cls}, 8, 15, {sep}]])  # CLS, subwords, SEP
inputs = {{"codepoints": ids, "mask": np.ones(ids.shape, dtype=bool)}}  # false behind a shorter text"""
SUBWORD_PAIRS = """\
ids = np.array([[{cls}, 8, 15, {sep}, 16, {sep}]])  # CLS, {first}, SEP, {second}, SEP
inputs = {{"codepoints": ids, "mask": np.ones(ids.shape, dtype=bool)}}  # false behind a shorter text
inputs["segments"] = np.array([[0, 0, 0, 0, 1, 1]])"""
LOGITS = '(logits,) = session.run(["logits"], inputs)\n'
CLASSES = """\
powers = np.exp(logits - logits.max(axis=1, keepdims=True))
probabilities = powers / powers.sum(axis=1, keepdims=True)
found = [labels[number] for number in logits.argmax(axis=1)]"""
NUMBERS = "found = logits[:, 0].tolist()"
TAGS = """\
found = []
for words, best in zip(sentences, logits.argmax(axis=2), strict=True):
    firsts = np.cumsum([1, *(len(symbols(word)){space} for word in words[:-1])])
    found.append([labels[number] for number in best[firsts]])"""
SUBWORD_TAGS = "found = [[labels[number] for number in best] for best in logits.argmax(axis=2)]  # of CLS and SEP, too"
SPANS = """\
begins, ends = session.run(["start_logits", "end_logits"], inputs)"""
ANSWERS = """
found = []
for (question, context), begin, end in zip(pairs, begins, ends, strict=True):
    places = len(symbols(question)) + 2 + {offsets}  # of the context
    gaps = places - places[:, None]  # from each begin to each end
    scores = np.where((gaps >= 0) & (gaps < {max_answer}), begin[places, None] + end[places], -np.inf)
    start, stop = np.unravel_index(scores.argmax(), scores.shape)
    found.append({answer})"""
OFFSETS = {
    "characters": "np.arange(len(context))",
    "bytes": "np.cumsum([0, *(len(character.encode()) for character in context[:-1])])",
    "words": "np.arange(len(symbols(context)))",
}
ANSWER = {
    "characters": "context[start : stop + 1]",
    "bytes": "context[start : stop + 1]",
    "words": "context.encode()[word_spans(context)[0][start] : word_spans(context)[1][stop]].decode()",
}
PADDING = """\
The model needs padding after a text: {spare} positions at least, to a multiple of {whole} or to {length}, its longest
input in training. So padded, the logits are those of tokenfree, whatever else is in the batch. {texts} of up to {room}
{symbols} fit; {special}."""
SPECIAL = {
    "characters": "U+0000 and U+E000 to U+E032, which stand for special symbols, tokenfree reads as U+FFFD",
    "bytes": "the bytes 0 to 4, which stand for special symbols, tokenfree reads as 1",
}
ROOM_FOR_WORDS = """\
Words are those of `word_spans`. White space is in none. Inputs of up to {num_words} words in {num_bytes} bytes fit, CLS
and SEP included."""
ROOM_FOR_SUBWORDS = """\
It reads ids of the subwords of its training data, up to {length}, whose SentencePiece model is in the run and not in
this folder."""
WORD_TAGS = "Words have single spaces between them; the tag of a word is that of its first {symbol}."
QUESTIONS = "Of a question the last {max_question} {symbols} are read."
LONG = f"Longer texts tokenfree reads in parts, which this program does not; {REMEDY} for them."


def task_snippet(graph: TaskGraph, encoder: TextEncoder, facts: Mapping[str, Any]) -> str:
    """A program that does the task, and what has to be known of it, in Markdown.

    Args:
        graph: what it computes.
        encoder: the encoder for texts that it is beside.
        facts: the contents of config.json.
    """
    kind = "words" if graph.reads_words else facts["symbols"]
    imports = ["import numpy as np", "import onnxruntime"]
    if graph.labels:
        imports[:0] = ["import json", ""]
    if kind == "words":
        imports.append("from tokenfree.preprocess.text.words import word_spans")
    parts = [LABELS] if graph.labels else []
    parts += _subwords(graph, facts) if kind == "subwords" else _rows(graph, kind, encoder)
    parts.append(_decoded(graph, kind))
    program = PROGRAM.format(imports="\n".join(imports), parts="\n".join(parts))
    return "\n\n".join([program, *_notes(graph, kind, encoder, facts)])


def _rows(graph: TaskGraph, kind: str, encoder: TextEncoder) -> list[str]:
    """The inputs, of texts."""
    examples = QUESTION_EXAMPLES if isinstance(graph, AnswerGraph) else PAIR_EXAMPLES
    is_pair, one = num_texts(graph) > 1, SENTENCES if isinstance(graph, TagGraph) else TEXTS
    rows = PAIRS.format(examples=examples) if is_pair else one
    padding = {"spare": encoder.spare, "whole": _whole(encoder), "length": encoder.length}
    arrays = WORD_ARRAYS if kind == "words" else SYMBOL_ARRAYS.format(**padding)
    segments = SEGMENTS.format(of_first='b"".join(symbols(first))' if kind == "words" else "symbols(first)")
    return [SYMBOLS[kind], rows, arrays, *[segments] * is_pair]


def _subwords(graph: TaskGraph, facts: Mapping[str, Any]) -> list[str]:
    """The inputs, of ids."""
    if num_texts(graph) == 1:
        return [SUBWORDS.format(**facts["special"])]
    return [SUBWORD_PAIRS.format(**facts["special"], first=graph.texts[0], second=graph.texts[1])]


def _decoded(graph: TaskGraph, kind: str) -> str:
    """What the outputs say."""
    task: Any = graph.task
    if isinstance(graph, AnswerGraph):
        if kind == "subwords":
            return SPANS
        answer = ANSWER[kind]
        if task.unanswerable:
            answer = f'{answer} if scores.max() > begin[0] + end[0] else ""'
        return SPANS + ANSWERS.format(offsets=OFFSETS[kind], max_answer=task.max_answer, answer=answer)
    if isinstance(graph, TagGraph):
        tags = TAGS.format(space="" if kind == "words" else " + 1")
        return LOGITS + (SUBWORD_TAGS if kind == "subwords" else tags)
    return LOGITS + (CLASSES if graph.labels else NUMBERS)


def _notes(graph: TaskGraph, kind: str, encoder: TextEncoder, facts: Mapping[str, Any]) -> list[str]:
    """What has to be known of the inputs."""
    task: Any = graph.task
    if kind == "words":
        notes = [ROOM_FOR_WORDS.format(num_words=facts["inputs"]["unit_ends"]["most"], num_bytes=encoder.length)]
    elif kind == "subwords":
        notes = [ROOM_FOR_SUBWORDS.format(length=encoder.length)]
    else:
        notes = [
            PADDING.format(
                spare=encoder.spare,
                whole=_whole(encoder),
                length=encoder.length,
                texts="Texts" if num_texts(graph) == 1 else "Two texts",
                room=encoder.max_characters + 1 - num_texts(graph),
                symbols=kind,
                special=SPECIAL[kind],
            )
        ]
    if isinstance(graph, TagGraph):
        notes.append(WORD_TAGS.format(symbol={"subwords": "subword", "bytes": "byte"}.get(kind, "character")))
    if isinstance(graph, AnswerGraph):
        notes.append(QUESTIONS.format(max_question=task.max_question, symbols=kind))
    return [*notes, *[LONG] * (len(graph.texts) == 1 or isinstance(graph, AnswerGraph))]


def _whole(encoder: TextEncoder) -> int:
    return math.lcm(encoder.group, encoder.block or 1)  # whole blocks of local attention, too
