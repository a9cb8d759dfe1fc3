"""The scorer: figures of the official script on its own files, and its rules one by one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenfree.train.tasks.qa_tydi import (
    NO_SPAN,
    Annotation,
    BestF1,
    Config,
    Outcome,
    Span,
    TydiExample,
    best_f1,
    byte_overlap_f1,
    read_tydi,
    score_tydi,
)

Line = dict[str, Any]


def test_the_official_script_s_figures_on_its_sample(test_data: Path) -> None:
    folder = test_data / "tydiqa"
    examples = list(read_tydi(str(folder / "small_gold_annotation.jsonl")))
    lines = [json.loads(line) for line in (folder / "sample_prediction.jsonl").read_text().splitlines()]
    scores = score_tydi(examples, lines)
    found = {name: (of["passage"].f1, of["minimal"].f1) for name, of in scores.items()}
    assert found == {
        "arabic": (1.0, pytest.approx(0.5707656612529002)),
        "korean": (0.0, 0.0),
        "thai": (1.0, 1.0),
    }
    metrics = Config().scores(examples, lines)
    assert metrics is not None
    assert metrics.values["passage_f1"] == pytest.approx(0.6666666666666666)
    assert metrics.values["minimal_f1"] == pytest.approx(0.5235885537509667)
    assert metrics.values["minimal_precision"] == pytest.approx(0.5235885537509667)


Marked = tuple[int, Span, str]
TWICE: tuple[Marked, ...] = ((1, (10, 20), "NONE"), (2, (40, 50), "NONE"), (-1, NO_SPAN, "NONE"))


def gold(number: int, *marked: Marked, language: str = "thai") -> TydiExample:
    return TydiExample(f"dev:{number}", number, language, "", b"", (), [Annotation(*each) for each in marked])


def answer(
    number: int,
    passage: int,
    span: Span = NO_SPAN,
    yes_no: str = "NONE",
    *,
    score: float = 1.0,
    language: str = "thai",
) -> Line:
    return {
        "example_id": number,
        "language": language,
        "passage_answer_index": passage,
        "passage_answer_score": score,
        "minimal_answer": {"start_byte_offset": span[0], "end_byte_offset": span[1]},
        "minimal_answer_score": score,
        "yes_no_answer": yes_no,
    }


def minimal(marked: TydiExample, given: Line) -> BestF1:
    return score_tydi([marked], [given])["thai"]["minimal"]


def test_any_annotator_s_answer_counts_if_two_have_one() -> None:
    for passage, right in ((1, 1.0), (2, 1.0), (0, 0.0), (-1, 0.0)):
        scores = score_tydi([gold(0, *TWICE)], [answer(0, passage)])
        assert scores["thai"]["passage"].f1 == right
    assert minimal(gold(0, *TWICE), answer(0, 2, (38, 48))).f1 == pytest.approx(0.8)
    once = gold(0, TWICE[0], *[TWICE[2]] * 2)
    assert minimal(once, answer(0, 1, (10, 20))).f1 == 0.0
    assert score_tydi([once], [answer(0, 1, (10, 20))])["thai"]["passage"].f1 == 0.0


def test_yes_and_no_are_right_or_wrong() -> None:
    marked = gold(0, (1, NO_SPAN, "YES"), (1, (10, 20), "NONE"), (1, NO_SPAN, "YES"))
    assert minimal(marked, answer(0, 1, yes_no="YES")).f1 == 1.0
    assert minimal(marked, answer(0, 1, yes_no="NO")).f1 == 0.0
    assert minimal(marked, answer(0, 1, (10, 20))).f1 == 1.0
    assert minimal(gold(0, *[TWICE[2]] * 2, (1, NO_SPAN, "NO")), answer(0, 1, yes_no="NO")).f1 == 0.0


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        ((0, 10), (0, 10), 1.0),
        ((0, 10), (10, 20), 0.0),
        ((0, 10), (5, 15), 0.5),
        ((0, 10), (2, 7), 2 / 3),
        ((3, 3), (3, 3), 0.0),
    ],
)
def test_overlap_in_bytes(one: Span, other: Span, f1: float) -> None:
    assert byte_overlap_f1(one, other) == byte_overlap_f1(other, one) == pytest.approx(f1)


def test_the_best_threshold_lies_between_answers_that_differ_in_score() -> None:
    right, wrong, none = (True, True, 1.0), (False, True, 0.0), (True, False, 0.0)
    assert best_f1([Outcome(*right, 3.0), Outcome(*wrong, 1.0)]) == BestF1(1.0, 1.0, 1.0)
    assert best_f1([Outcome(*wrong, 2.0), Outcome(*right, 2.0)]) == BestF1(2 / 3, 0.5, 1.0)
    assert best_f1([Outcome(*none, 5.0), Outcome(*right, 2.0)]) == BestF1(2 / 3, 1.0, 0.5)
    assert best_f1([]) == best_f1([Outcome(*wrong, 1.0)]) == BestF1()


def test_a_missing_prediction_counts_as_one_only_where_there_is_no_answer() -> None:
    """The official script's quirk: at score 0, which is why every question is to be given a prediction."""
    given = [answer(0, 1, score=-1.0)]
    answered, unanswered = gold(1, *TWICE), gold(1, *[TWICE[2]] * 3)
    first = gold(0, *TWICE)
    assert score_tydi([first], given)["thai"]["passage"] == BestF1(1.0, 1.0, 1.0)
    assert score_tydi([first, answered], given)["thai"]["passage"] == BestF1(2 / 3, 1.0, 0.5)
    assert score_tydi([first, unanswered], given)["thai"]["passage"] == BestF1(2 / 3, 0.5, 1.0)


def test_the_mean_is_over_the_languages_that_have_predictions_without_english() -> None:
    marked = [
        gold(n, *TWICE, language=language)
        for n, language in enumerate(("thai", "korean", "english", "telugu"))
    ]
    given = [
        answer(0, 1),
        answer(1, 0, language="korean"),
        answer(2, 1, language="english"),
        answer(9, 1, language="arabic"),
    ]
    scores = score_tydi(marked, given)
    assert list(scores) == ["arabic", "english", "korean", "thai"]
    assert scores["english"]["passage"].f1 == 1.0
    metrics = Config().scores(marked, given)
    assert metrics is not None
    assert metrics.values["passage_f1"] == pytest.approx(1 / 3)


def test_a_prediction_in_another_language_is_missing_from_its_own() -> None:
    scores = score_tydi([gold(0, *TWICE)], [answer(0, 1, language="korean")])
    assert list(scores) == ["korean"]
    assert scores["korean"]["passage"].f1 == 0.0
