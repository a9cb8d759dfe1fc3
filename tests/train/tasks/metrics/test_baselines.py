"""Simple baselines of tasks: what they predict, how they are sampled and scored."""

import math
from collections.abc import Sequence

import pytest

from tokenfree.train.tasks import classification, metrics, pairs, qa_squad, tagging
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.metrics import sample, score_baselines
from tokenfree.train.tasks.qa_squad import SquadExample


def tagged(*sentences: str) -> list[TaggedExample]:
    """Return sentences such as `Bo/B-PER naps/O`."""
    rows = [[word.split("/") for word in sentence.split()] for sentence in sentences]
    return [TaggedExample("", *zip(*row, strict=True)) for row in rows]


def labelled(count: int, *, pairs: bool = False, numbers: bool = False) -> list[TextExample]:
    """Return days, of which one third is bad."""
    return [
        TextExample(
            str(number),
            f"{'good' if number % 3 else 'bad'} day {number}",
            "a day" if pairs else None,
            float(number % 3 > 0) if numbers else "plus" if number % 3 else "minus",
        )
        for number in range(count)
    ]


def test_tagging_predicts_the_most_frequent_tag_of_each_word() -> None:
    train = tagged("Bo/B-PER saw/O Rome/B-LOC", "Bo/B-PER Rome/B-LOC", "Bo/O")
    task = tagging.Config().fitted(train)
    dev = tagged("Bo/B-PER likes/O Rome/B-LOC", "Ana/B-PER naps/O")
    found = score_baselines(task, {"train": train, "dev": dev})
    assert list(found["baseline"]["dev"]) == ["most frequent tag"]
    scores = found["baseline"]["dev"]["most frequent tag"]
    assert (scores["f1"], scores["precision"], scores["accuracy"]) == (pytest.approx(2 * 2 / 5), 1, 4 / 5)
    assert found["baseline_lines"] == {}


def test_tagging_of_single_words_gives_unseen_words_the_most_frequent_tag() -> None:
    train = tagged("a/DET cat/NOUN", "a/DET dog/NOUN naps/NOUN")
    (predict,) = tagging.Config(scheme="words").fitted(train).baselines(train).values()
    assert predict(tagged("a/DET bird/NOUN")) == [{"tags": ["DET", "NOUN"]}]


@pytest.mark.parametrize("name", ["classification", "pairs"])
def test_labelled_texts_have_the_larger_class_and_ngrams(name: str) -> None:
    task = {"classification": classification, "pairs": pairs}[name].Config()
    train, test = (labelled(count, pairs=name == "pairs") for count in (60, 30))
    found = score_baselines(task.fitted(train), {"train": train, "dev": test[:9], "test": test})
    assert found["baseline"]["dev"]["larger class"]["accuracy"] == pytest.approx(2 / 3)
    assert found["baseline"]["test"]["character n-grams"]["accuracy"] == 1
    assert found == score_baselines(task.fitted(train), {"train": train, "dev": test[:9], "test": test})


def test_numbers_have_a_regression_over_ngrams_alone() -> None:
    task, train = classification.Config(regression=True), labelled(60, numbers=True)
    found = score_baselines(task, {"train": train, "dev": labelled(9, numbers=True)})["baseline"]["dev"]
    assert list(found) == ["character n-grams"]
    assert found["character n-grams"]["pearson"] > 0.9


def test_texts_without_common_ngrams_have_the_larger_class_alone() -> None:
    train = [TextExample("1", "a", None, "x"), TextExample("2", "b", None, "y")]
    assert list(classification.Config().fitted(train).baselines(train)) == ["larger class"]


def test_splits_without_answers_are_not_scored() -> None:
    bare = [TextExample("1", "a day", None, None)]
    train = labelled(30)
    found = score_baselines(classification.Config().fitted(train), {"train": train, "test": bare})
    assert found["baseline"] == {"test": {}}


def test_sample_is_fixed_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts(example: int) -> Sequence[str]:
        return ["x" * 10]

    numbers = range(1000)
    assert sample(numbers, texts, math.inf) == list(numbers)
    half = sample(numbers, texts, 5000)
    assert (len(half), half) == (500, sorted(half))
    assert 350 < sum(number < 700 for number in half) < 400 > len({number % 2 for number in half}) == 2
    monkeypatch.setattr(metrics, "MAX_LINES", 100)
    assert set(first := sample(numbers, texts, math.inf)) < set(half)
    assert (len(first), first) == (100, sample(numbers, texts, math.inf))
    assert len(sample(numbers, texts, 1)) == 1


def test_a_large_set_is_sampled_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_LINES", 40)
    train, dev = labelled(50), labelled(30)
    found = score_baselines(classification.Config().fitted(train), {"train": train, "dev": dev})
    assert found["baseline_lines"] == {"train": [40, 50]}


def test_many_classes_have_fewer_training_characters_and_as_many_others() -> None:
    few, many = (classification.Config(labels=tuple(map(str, range(count)))) for count in (2, 200))
    assert few.baseline_characters("train") == many.baseline_characters("dev") == 1_500_000
    assert many.baseline_characters("train") == 150_000


def test_squad_has_no_answer_only_if_some_questions_have_none() -> None:
    answered = SquadExample("a", "a", "Who?", "Ana", [{"text": "Ana", "answer_start": 0}])
    open_ = SquadExample("b", "b", "Where?", "Ana", [])
    task = qa_squad.Config().fitted([answered, open_])
    found = score_baselines(task, {"train": [answered, open_], "dev": [answered, open_]})
    assert found["baseline"]["dev"]["no answer"]["f1"] == 0.5
    assert qa_squad.Config().fitted([answered]).baselines([answered]) == {}
