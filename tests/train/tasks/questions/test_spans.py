"""Decoding against CANINE's procedure written out with loops."""

import numpy as np
import pytest

from tests.train.tasks.conftest import Write, characters, record
from tokenfree.train.tasks.base import Item
from tokenfree.train.tasks.qa_tydi import Config, TydiExample, official_prediction, read_tydi
from tokenfree.train.tasks.questions import Reading, SpanAnswer, SpanDecoder, Window, best_of_windows

PASSAGES = ["Äiti on 🙂, mutta ei aina.", "日本語と漢字", "Se on 1869, ja sitten 1870."]
LENGTH = 40


@pytest.fixture
def example(write: Write) -> TydiExample:
    return next(read_tydi(write(record(PASSAGES))))


def by_loops(
    starts: list[float], ends: list[float], reading: Reading, window: Window, candidates: int, most: int
) -> tuple[float, int, int] | None:
    """Score, first and last byte of the best answer of a window."""

    def best(logits: list[float]) -> list[int]:
        return sorted(range(1, LENGTH), key=lambda position: -logits[position])[:candidates]

    def at(position: int) -> tuple[int, int] | None:
        index, text = position - reading.offset, reading.text
        if not 0 <= index < len(window.part) or text.starts[window.part[index]] < 0:
            return None
        return int(text.starts[window.part[index]]), int(text.ends[window.part[index]])

    found: list[tuple[float, int, int]] = []
    for start in best(starts):
        for end in best(ends):
            first, last = at(start), at(end)
            if first is not None and last is not None and 0 <= end - start < most:
                found.append((starts[start] + ends[end] - (starts[0] + ends[0]), first[0], last[1]))
    return max(found, key=lambda answer: answer[0], default=None)


@pytest.mark.parametrize(("candidates", "most"), [(30, 100), (30, 4), (5, 100), (2, 3), (1, 100), (50, 1)])
@pytest.mark.parametrize("rounded", [False, True], ids=["all differ", "many alike"])
def test_is_the_procedure_of_the_document(
    example: TydiExample, candidates: int, most: int, rounded: bool
) -> None:
    collator = Config(max_question=5, stride=9).collator(characters(LENGTH), 0)
    reading = collator.read(example)
    windows = collator.cut(reading)
    arrays = collator([Item(0, LENGTH, (example, window)) for window in windows], np.arange(len(windows)))
    draws = np.random.default_rng(0)
    without = 0
    for _ in range(20):
        logits = draws.normal(size=(2, len(windows), LENGTH)).astype(np.float32)
        starts, ends = np.round(logits) if rounded else logits
        scores, firsts, lasts = SpanDecoder(candidates, most).best(starts, ends, arrays["starts"] >= 0)
        expected = [
            by_loops(start, end, reading, window, candidates, most)
            for start, end, window in zip(starts.tolist(), ends.tolist(), windows, strict=True)
        ]
        for row, wanted in enumerate(expected):
            if wanted is None:
                without += 1
                assert scores[row] == -np.inf
                continue
            first, last = firsts[row], lasts[row]
            assert (scores[row], arrays["starts"][row, first], arrays["ends"][row, last]) == wanted
            assert last - first < most
    assert without or candidates > 1


def test_the_best_window_answers_and_the_first_of_equals() -> None:
    none = SpanAnswer((0, 0), -np.inf)
    answers = [none, SpanAnswer((1, 2), 0.5), SpanAnswer((2, 3), 2.0), SpanAnswer((3, 4), 2.0), none]
    assert best_of_windows(answers) == SpanAnswer((2, 3), 2.0)
    assert best_of_windows([none, none]) is None
    assert best_of_windows([]) is None


def test_the_passage_is_the_first_that_holds_the_answer_else_the_first_of_all(example: TydiExample) -> None:
    begin, end = example.passages[1]
    for span in ((begin, begin + 6), (begin, end)):
        prediction = official_prediction(example, SpanAnswer(span, 1.5))
        assert prediction["passage_answer_index"] == 1
        assert tuple(prediction["minimal_answer"].values()) == span
        assert prediction["passage_answer_score"] == prediction["minimal_answer_score"] == 1.5
    assert official_prediction(example, SpanAnswer((begin, end + 4), 1.5))["passage_answer_index"] == 0
    nothing = official_prediction(example, None)
    assert nothing["minimal_answer"] == {"start_byte_offset": -1, "end_byte_offset": -1}
    assert (nothing["passage_answer_index"], nothing["yes_no_answer"]) == (-1, "NONE")
