"""F1 of spans against cases that conlleval decides, and against a count of sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.train.tasks.metrics import span_metrics, tag_metrics

# gold, predicted, and what conlleval prints: right, predicted, there
CASES = {
    "all right": ("B-P I-P O B-L", "B-P I-P O B-L", (2, 2, 2)),
    "wrong type": ("B-P I-P O", "B-L I-L O", (0, 1, 1)),
    "wrong beginning": ("B-P I-P I-P", "O B-P I-P", (0, 1, 1)),
    "wrong end": ("B-P I-P O", "B-P O O", (0, 1, 1)),
    "an end too far": ("B-P I-P O", "B-P I-P I-P", (0, 1, 1)),
    "cut in two": ("B-P I-P I-P", "B-P B-P I-P", (0, 2, 1)),
    "two as one": ("B-P B-P", "B-P I-P", (0, 1, 2)),
    "neighbours of a type": ("B-P B-P I-P O", "B-P B-P I-P O", (2, 2, 2)),
    "neighbours of two types": ("B-P I-P B-L", "B-P I-P B-L", (2, 2, 2)),
    "I- without B-": ("O B-P I-P", "O I-P I-P", (1, 1, 1)),
    "I- of another type": ("B-P I-P I-P", "B-P I-L I-L", (0, 2, 1)),
    "I- of another type is right": ("B-P B-L I-L", "B-P I-L I-L", (2, 2, 2)),
    "I- after O": ("B-P O B-P", "B-P O I-P", (2, 2, 2)),
    "at the end": ("O O B-P", "O O B-P", (1, 1, 1)),
    "nothing said": ("B-P O", "O O", (0, 0, 1)),
    "nothing there": ("O O", "B-P O", (0, 1, 0)),
    "neither": ("O O", "O O", (0, 0, 0)),
    "one right of two": ("B-P O B-L O", "B-P O O B-L", (1, 2, 2)),
    "two right of three": ("O B-P O B-L", "B-X B-P O B-L", (2, 3, 2)),
    "types with a minus": ("B-creative-work I-creative-work", "B-creative-work I-creative-work", (1, 1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_as_conlleval_has_it(case: str) -> None:
    gold, predicted, (right, said, there) = CASES[case]
    found = span_metrics([gold.split()], [predicted.split()]).values
    assert found["precision"] == (right / said if said else 0)
    assert found["recall"] == (right / there if there else 0)
    assert found["f1"] == pytest.approx(2 * right / (said + there) if said + there else 0)


def test_a_span_ends_with_its_sentence() -> None:
    apart = span_metrics([["B-P"], ["I-P"]], [["B-P"], ["I-P"]])
    assert apart.values["f1/P"] == 1
    assert span_metrics([["B-P"], ["B-P"]], [["B-P"], ["I-P"]]).score == 1


def test_by_type_and_by_word() -> None:
    gold, said = [["B-P", "O", "B-L"], ["B-L", "I-L"]], [["B-P", "O", "B-P"], ["B-L", "I-L"]]
    found = span_metrics(gold, said)
    assert found.main == "f1"
    assert found.values == pytest.approx(
        {"f1": 2 / 3, "precision": 2 / 3, "recall": 2 / 3, "accuracy": 4 / 5, "f1/L": 2 / 3, "f1/P": 2 / 3}
    )
    shifted = span_metrics([["O", "B-P", "B-L"]], [["B-X", "B-P", "B-L"]]).values
    assert (shifted["f1/P"], shifted["f1/L"], shifted["f1/X"]) == (1, 1, 0)
    assert tag_metrics(gold, said).values == {"accuracy": 4 / 5}


def test_a_sentence_of_many_words() -> None:
    gold, said = ["B-P", "I-P", "O", "B-L"] * 40_000, ["B-P", "I-P", "B-L", "B-L"] * 40_000
    assert span_metrics([gold], [said]).values["precision"] == 2 / 3


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    found, start = set(), None
    for n, tag in enumerate([*tags, "O"]):
        before = tags[n - 1] if n else "O"
        if start is not None and not (tag[0] == "I" and tag[1:] == before[1:]):
            found.add((start, n, before[2:]))
            start = None
        if tag != "O" and start is None:
            start = n
    return found


TAG = st.sampled_from(["O", "B-P", "I-P", "B-L", "I-L"])
SENTENCES = st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=8), min_size=1, max_size=3)


@given(SENTENCES)
def test_as_a_count_of_sets(sentences: list[list[tuple[str, str]]]) -> None:
    gold = [[one for one, _ in sentence] for sentence in sentences]
    said = [[other for _, other in sentence] for sentence in sentences]
    pairs = [(spans(ours), spans(theirs)) for ours, theirs in zip(gold, said, strict=True)]
    right = sum(len(ours & theirs) for ours, theirs in pairs)
    there, claimed = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    found = span_metrics(gold, said).values
    wanted = (right / max(claimed, 1), right / max(there, 1), 2 * right / max(claimed + there, 1))
    assert (found["precision"], found["recall"], found["f1"]) == pytest.approx(wanted)
