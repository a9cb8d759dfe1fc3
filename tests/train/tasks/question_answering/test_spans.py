"""Decoding against CANINE's procedure written out with loops."""

import numpy as np
import pytest

from tests.train.tasks.question_answering.conftest import Write, record
from tokenfree.train.tasks.question_answering.readable import QUESTION_MARKER, codepoints_of, readable_article
from tokenfree.train.tasks.question_answering.spans import SpanAnswer, SpanDecoder, best_of_windows
from tokenfree.train.tasks.question_answering.tydi_files import TydiExample, read_tydi
from tokenfree.train.tasks.question_answering.tydi_predictions import tydi_prediction
from tokenfree.train.tasks.question_answering.windows import Window, WindowCutter, frame_windows

PASSAGES = ["Äiti on 🙂, mutta ei aina.", "日本語と漢字", "Se on 1869, ja sitten 1870."]
LENGTH = 40


@pytest.fixture
def example(write: Write) -> TydiExample:
    return next(read_tydi(write(record(PASSAGES))))


def cut(example: TydiExample) -> list[Window]:
    cutter = WindowCutter(length=LENGTH, max_question=5, stride=9, marker=QUESTION_MARKER)
    return cutter.cut(codepoints_of(example.question), readable_article(example, 45))


def by_loops(
    starts: list[float], ends: list[float], window: Window, candidates: int, most: int
) -> tuple[float, int, int] | None:
    """Score, first and last byte of the best answer of a window."""

    def best(logits: list[float]) -> list[int]:
        return sorted(range(1, LENGTH), key=lambda position: -logits[position])[:candidates]

    def at(position: int) -> tuple[int, int] | None:
        index = position - window.offset
        if not 0 <= index < len(window.part) or window.text.starts[window.part[index]] < 0:
            return None
        return int(window.text.starts[window.part[index]]), int(window.text.ends[window.part[index]])

    found: list[tuple[float, int, int]] = []
    for start in best(starts):
        for end in best(ends):
            first, last = at(start), at(end)
            if first is not None and last is not None and 0 <= end - start < most:
                found.append((starts[start] + ends[end] - (starts[0] + ends[0]), first[0], last[1]))
    return max(found, key=lambda answer: answer[0], default=None)


@pytest.mark.parametrize(("candidates", "most"), [(30, 100), (30, 4), (5, 100), (2, 3), (1, 100), (50, 1)])
@pytest.mark.parametrize("rounded", [False, True], ids=["all differ", "many alike"])
def test_is_the_procedure_of_the_document(example: TydiExample, candidates: int, most: int, rounded: bool) -> None:
    windows = cut(example)
    draws = np.random.default_rng(0)
    without = 0
    for _ in range(20):
        logits = draws.normal(size=(2, len(windows), LENGTH)).astype(np.float32)
        starts, ends = np.round(logits) if rounded else logits
        answers = SpanDecoder(candidates, most).best(starts, ends, frame_windows(windows, LENGTH).readable, windows)
        expected = [
            by_loops(*row, candidates, most) for row in zip(starts.tolist(), ends.tolist(), windows, strict=True)
        ]
        for answer, wanted, window in zip(answers, expected, windows, strict=True):
            assert (answer is None) == (wanted is None)
            if answer is None or wanted is None:
                without += 1
                continue
            assert (answer.score, *answer.bytes_of(window.text)) == wanted
            assert len(answer.characters) <= most
    assert without or candidates > 1


def test_the_best_window_answers_and_the_first_of_equals() -> None:
    answers = [None, SpanAnswer(range(1, 2), 0.5), SpanAnswer(range(2, 3), 2.0), SpanAnswer(range(3, 4), 2.0), None]
    assert best_of_windows(answers) == SpanAnswer(range(2, 3), 2.0)
    assert best_of_windows([None, None]) is None
    assert best_of_windows([]) is None


def test_the_passage_is_the_first_that_holds_the_answer_else_the_first_of_all(example: TydiExample) -> None:
    article = readable_article(example, 45)
    inside = range(article.passages[1].start, article.passages[1].start + 2)
    prediction = tydi_prediction(example, article, SpanAnswer(inside, 1.5))
    begin = example.passages[1][0]
    assert (prediction.passage, prediction.span) == (1, (begin, begin + 6))
    assert prediction.passage_score == prediction.span_score == 1.5
    across = range(article.passages[1].start, article.passages[2].start + 2)
    assert tydi_prediction(example, article, SpanAnswer(across, 1.5)).passage == 0
    nothing = tydi_prediction(example, article, None)
    assert (nothing.passage, nothing.span, nothing.yes_no) == (-1, (-1, -1), "NONE")
