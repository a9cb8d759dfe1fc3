"""The scorer: figures of the official script on its own files, and its rules one by one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.train.tasks.question_answering.conftest import Write
from tokenfree.core.errors import UserError
from tokenfree.train.tasks.qa.files import NO_SPAN, Annotation, Span, YesNo, read_tydi
from tokenfree.train.tasks.qa.tydi import (
    BestF1,
    TydiGold,
    TydiPrediction,
    best_f1,
    byte_overlap_f1,
    read_predictions,
    score_tydi,
)


def test_the_official_script_s_figures_on_its_sample(test_data: Path) -> None:
    folder = test_data / "tydiqa"
    gold = [
        TydiGold(e.example_id, e.language, e.annotations or ())
        for e in read_tydi(str(folder / "small_gold_annotation.jsonl"))
    ]
    scores = score_tydi(gold, read_predictions(str(folder / "sample_prediction.jsonl")))
    found = {name: (of.passage.f1, of.minimal.f1) for name, of in scores.languages.items()}
    assert found == {"arabic": (1.0, pytest.approx(0.5707656612529002)), "korean": (0.0, 0.0), "thai": (1.0, 1.0)}
    assert (scores.macro.passage.f1, scores.macro.minimal.f1) == pytest.approx((0.6666666666666666, 0.5235885537509667))
    assert scores.macro.minimal.precision == pytest.approx(0.5235885537509667)
    assert scores.languages["thai"].minimal.threshold == 17.731379434466362


Marked = tuple[int, Span, YesNo]
TWICE: tuple[Marked, ...] = ((1, (10, 20), "NONE"), (2, (40, 50), "NONE"), (-1, NO_SPAN, "NONE"))


def gold(number: int, *marked: Marked, language: str = "thai") -> TydiGold:
    return TydiGold(number, language, [Annotation(*each) for each in marked])


def answer(
    number: int,
    passage: int,
    span: Span = NO_SPAN,
    yes_no: YesNo = "NONE",
    *,
    score: float = 1.0,
    language: str = "thai",
) -> TydiPrediction:
    return TydiPrediction(number, language, passage, score, span, score, yes_no)


def minimal(marked: TydiGold, given: TydiPrediction) -> BestF1:
    return score_tydi([marked], [given]).languages["thai"].minimal


def test_any_annotator_s_answer_counts_if_two_have_one() -> None:
    for passage, right in ((1, 1.0), (2, 1.0), (0, 0.0), (-1, 0.0)):
        scores = score_tydi([gold(0, *TWICE)], [answer(0, passage)])
        assert scores.languages["thai"].passage.f1 == right
    assert minimal(gold(0, *TWICE), answer(0, 2, (38, 48))).f1 == pytest.approx(0.8)
    once = gold(0, TWICE[0], *[TWICE[2]] * 2)
    assert minimal(once, answer(0, 1, (10, 20))).f1 == 0.0
    assert score_tydi([once], [answer(0, 1, (10, 20))]).languages["thai"].passage.f1 == 0.0


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
    assert best_f1([(*right, 3.0), (*wrong, 1.0)]) == BestF1(1.0, 1.0, 1.0, 3.0)
    assert best_f1([(*wrong, 2.0), (*right, 2.0)]) == BestF1(2 / 3, 0.5, 1.0, 2.0)
    assert best_f1([(*none, 5.0), (*right, 2.0)]) == BestF1(2 / 3, 1.0, 0.5, 2.0)
    assert best_f1([]) == best_f1([(*wrong, 1.0)]) == BestF1()


def test_a_missing_prediction_counts_as_one_only_where_there_is_no_answer() -> None:
    """The official script's quirk: at score 0, which is why every question is to be given a prediction."""
    given = [answer(0, 1, score=-1.0)]
    answered, unanswered = gold(1, *TWICE), gold(1, *[TWICE[2]] * 3)
    first = gold(0, *TWICE)
    assert score_tydi([first], given).languages["thai"].passage == BestF1(1.0, 1.0, 1.0, -1.0)
    assert score_tydi([first, answered], given).languages["thai"].passage == BestF1(2 / 3, 1.0, 0.5, -1.0)
    assert score_tydi([first, unanswered], given).languages["thai"].passage == BestF1(2 / 3, 0.5, 1.0, -1.0)


def test_the_mean_is_over_the_languages_that_have_predictions_without_english() -> None:
    marked = [gold(n, *TWICE, language=language) for n, language in enumerate(("thai", "korean", "english", "telugu"))]
    given = [
        answer(0, 1),
        answer(1, 0, language="korean"),
        answer(2, 1, language="english"),
        answer(9, 1, language="arabic"),
    ]
    scores = score_tydi(marked, given)
    assert list(scores.languages) == ["arabic", "english", "korean", "thai"]
    assert scores.languages["english"].passage.f1 == 1.0
    assert scores.macro.passage.f1 == pytest.approx(1 / 3)
    assert scores.macro.passage.threshold is None
    assert score_tydi(marked, given[2:3]).macro.passage.f1 == 0.0


def test_a_prediction_in_another_language_is_missing_from_its_own() -> None:
    scores = score_tydi([gold(0, *TWICE)], [answer(0, 1, language="korean")])
    assert list(scores.languages) == ["korean"]
    assert scores.languages["korean"].passage.f1 == 0.0


def test_predictions_are_read_and_written_in_the_official_form(test_data: Path) -> None:
    sample = test_data / "tydiqa" / "sample_prediction.jsonl"
    written = [prediction.to_json() for prediction in read_predictions(str(sample))]
    assert written == [json.loads(line) for line in sample.read_text().splitlines()]


FULL: dict[str, Any] = answer(3, 1, (2, 5)).to_json()
BROKEN = [
    ({**FULL, "minimal_answer": {"start_byte_offset": 5, "end_byte_offset": 2}}, "from byte 5 to 2"),
    ({**FULL, "minimal_answer": {"start_byte_offset": 5}}, "from byte 5 to -1"),
    ({**FULL, "yes_no_answer": "YES"}, "yes_no_answer is YES and there is a minimal_answer"),
    ({**FULL, "yes_no_answer": "perhaps"}, "is 'PERHAPS'; it is to be YES, NO or NONE"),
    ({key: FULL[key] for key in FULL if key != "language"}, "has no 'language'"),
    ({**FULL, "minimal_answer_score": "high"}, "could not convert string to float: 'high'"),
    ({**FULL, "minimal_answer": None}, "no prediction"),
    ("nothing", "no JSON"),
]


@pytest.mark.parametrize(("line", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_line_that_is_no_prediction(write: Write, line: Any, message: str) -> None:
    path = write(answer(2, 1).to_json(), line)
    with pytest.raises(UserError) as error:
        read_predictions(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)


def test_a_second_prediction(write: Write) -> None:
    with pytest.raises(UserError, match=r":2: a second prediction for example_id 3"):
        read_predictions(write(FULL, FULL))
