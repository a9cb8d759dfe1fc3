"""The rules of SQuAD 1.1 and 2.0; the figures are what their scripts give."""

import pytest

from tokenfree.train.tasks.qa_squad import SquadScores, best_with_threshold, normalized, score_squad, word_f1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The  cat,\tan (old) THE-atre!", "cat old theatre"),
        ("Theanthe a.", "theanthe"),
        ("«Der Hund» und das", "«der hund» und das"),
    ],
)
def test_the_words_that_count(answer: str, words: str) -> None:
    assert normalized(answer) == words


@pytest.mark.parametrize(
    ("gold", "answer", "f1"),
    [
        ("the cat", "Cat!", 1.0),
        ("cat cat dog", "cat cat cat", 2 / 3),
        ("cat", "dog", 0.0),
        ("the", "a", 0.0),
        ("cat", "", 0.0),
    ],
)
def test_f1_of_words(gold: str, answer: str, f1: float) -> None:
    assert word_f1(gold, answer) == word_f1(answer, gold) == pytest.approx(f1)


def test_squad_1_takes_the_best_of_the_right_answers_for_each_metric() -> None:
    gold = {"a": ["the red house", "house"], "b": ["1869"], "c": ["the"]}
    scores = score_squad(gold, {"a": "red house", "c": ""})
    assert scores == {"all": SquadScores(2 / 3, 1 / 3)}  # b is missing; nothing is exactly "the", without F1
    assert score_squad(gold, {"a": "a House"})["all"].exact_match == pytest.approx(1 / 3)


def test_squad_2_also_has_nothing_as_a_right_answer() -> None:
    gold = {"a": ["red house"], "b": [], "c": [], "d": ["the", "cat"]}
    scores = score_squad(gold, {"a": "red", "b": "", "c": "cat", "d": ""})
    assert scores["all"] == SquadScores(0.25, (2 / 3 + 1) / 4)
    assert scores["answerable"] == SquadScores(0.0, 1 / 3)
    assert scores["unanswerable"] == SquadScores(0.5, 0.5)
    assert score_squad({"a": ["the"], "b": []}, {"a": "", "b": ""})["all"].f1 == 1.0


def test_the_best_threshold() -> None:
    gold = {"a": ["red house"], "b": [], "c": ["cat"], "d": []}
    answers = {"a": "red house", "b": "cat", "c": "a cat", "d": "house"}
    for scores, best in (
        ({"a": 3.0, "c": 2.0, "b": 1.0, "d": 0.0}, 1.0),
        ({"a": 3.0, "c": 1.0, "b": 1.0, "d": 0.0}, 0.75),
        ({"b": 3.0, "d": 2.0, "a": 1.0, "c": 0.0}, 0.5),
    ):
        assert best_with_threshold(gold, answers, scores) == SquadScores(best, best)
