"""Scores of labels and numbers against values worked out by hand."""

import math

import pytest

from tokenfree.train.tasks.metrics import label_metrics, number_metrics

# a: 2 right of 3 there and 3 said; b: 1 of 2 and 2; c: 0 of 1 and 1
GOLD, SAID = ["a", "a", "a", "b", "b", "c"], ["a", "a", "b", "b", "c", "a"]


def test_labels() -> None:
    found = label_metrics(GOLD, SAID, ("macro_f1", "accuracy", "f1"), positive="a")
    assert found.main == "macro_f1"
    assert found.values == pytest.approx(
        {"macro_f1": (2 / 3 + 1 / 2 + 0) / 3, "accuracy": 3 / 6, "f1": 2 / 3}
    )
    assert found.score == found.values["macro_f1"]


def test_matthews_of_two_classes() -> None:
    gold, said = ["1"] * 6 + ["0"] * 4, ["1"] * 5 + ["0"] + ["0"] * 3 + ["1"]
    right = (5 * 3 - 1 * 1) / math.sqrt(6 * 6 * 4 * 4)
    assert label_metrics(gold, said, ("matthews",)).score == pytest.approx(right)
    assert label_metrics(gold, ["1"] * 10, ("matthews",)).score == 0


def test_a_class_that_never_occurs() -> None:
    assert label_metrics(["a"], ["a"], ("f1",), positive="b").score == 0
    assert label_metrics(["a"], ["b"], ["f1"], positive="b").values["f1"] == 0


def test_numbers() -> None:
    found = number_metrics([1, 2, 3, 4], [1, 4, 9, 16])
    assert found.main == "pearson"
    assert found.values == pytest.approx({"pearson": 25 / math.sqrt(5 * 129), "spearman": 1})
    assert number_metrics([1, 2, 3], [3, 2, 1], ("spearman",)).values == pytest.approx({"spearman": -1})


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_all_alike() -> None:
    assert number_metrics([1, 2, 3], [0.1, 0.1, 0.1]).values == {"pearson": 0, "spearman": 0}
    assert number_metrics([1], [2]).values == {"pearson": 0, "spearman": 0}
