"""Each invariant of the columns, broken by hand: the check names the row and the column."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.windows import build_windows
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.verify import check_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.records import MAX_WINDOW_CHARACTERS, Document, schema

TEXTS = ["First row. It is fine.", "Zweite Zeile: schön é 語。", "third"]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.load(
        train_vocabulary(
            TEXTS, VocabularyConfig(size=284, required_characters="none", character_coverage=1.0), 0
        )
    )


@pytest.fixture
def rows(vocabulary: Vocabulary) -> list[Row]:
    documents = [Document(f"books:{index}", "en", "", text) for index, text in enumerate(TEXTS)]
    return build_windows(documents, PreprocessConfig(), vocabulary).to_pylist()


def batch_of(rows: list[Row], columns: list[str] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema(columns or rows[0].keys()))


def put(column: str, index: int, value: int) -> Callable[[Row], None]:
    return lambda row: row[column].__setitem__(index, value)


def replace(**values: Any) -> Callable[[Row], None]:
    return lambda row: row.update(values)


def test_sound_rows_pass(rows: list[Row], vocabulary: Vocabulary) -> None:
    assert check_windows(batch_of(rows), vocabulary) is None
    assert check_windows(batch_of(rows)) is None
    assert check_windows(batch_of(rows).slice(1, 1), vocabulary) is None
    assert check_windows(batch_of(rows).slice(0, 0), vocabulary) is None
    for column in ("document", "text", "word_starts", "subword_ends"):
        assert check_windows(batch_of(rows, [column]), vocabulary) is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (put("codepoints", 3, 0), "codepoints: is not that of text"),
        (lambda row: row["codepoints"].pop(), "codepoints: has not the length of text"),
        (put("whitespace", 0, True), "whitespace: is not that of text"),
        (lambda row: row["whitespace"].append(False), "whitespace: has not the length of text"),
        (replace(text="Zweite Zeile: schon é 語。"), "codepoints: is not that of text"),
        (lambda row: row["word_ends"].pop(), "word_ends: has not the length of word_starts"),
        (put("word_ends", -1, 900), "word_ends: a word lies behind the text"),
        (put("word_starts", -1, 900), "word_ends: a word lies behind the text"),
        (put("word_ends", 0, 0), "word_ends: a word ends before it starts"),
        (put("word_ends", 0, 8), "word_starts: words overlap or are out of order"),
        (put("word_ends", 3, 18), "word_ends: a word is cut inside a character"),
        (put("word_ends", 0, 5), "word_starts: words do not cover exactly"),
        (put("word_ends", 0, 7), "word_starts: words do not cover exactly"),
        (put("subword_ids", 0, 284), "subword_ids: an id that the vocabulary does not have"),
        (put("subword_ids", 0, -1), "subword_ids: an id that the vocabulary does not have"),
        (lambda row: row["subword_ids"].pop(), "subword_ids: has not the length of subword_starts"),
        (lambda row: row["subword_ends"].pop(), "subword_ends: has not the length of subword_starts"),
        (put("subword_ends", -1, 900), "subword_ends: a subword lies behind the text"),
        (put("subword_starts", 0, 20), "subword_ends: a subword ends before it starts"),
        (put("subword_ends", 0, 3), "subword_starts: subwords overlap or are out of order"),
        (put("sentence_starts", 0, 1), "sentence_starts: the first is not 0"),
        (replace(sentence_starts=[]), "sentence_starts: is empty"),
        (replace(sentence_starts=[0, 7, 7]), "sentence_starts: are not increasing"),
        (replace(sentence_starts=[0, 900]), "sentence_starts: one lies behind the text"),
    ],
)
def test_a_broken_row_is_named(
    rows: list[Row], vocabulary: Vocabulary, damage: Callable[[Row], None], message: str
) -> None:
    damage(rows[1])
    broken = check_windows(batch_of(rows), vocabulary)
    assert broken is not None
    assert broken.startswith(f"row 1: {message.split(':')[0]}: ")
    assert message in broken


def test_a_subword_with_white_space(rows: list[Row], vocabulary: Vocabulary) -> None:
    last = next(index for index, end in enumerate(rows[1]["subword_ends"]) if end == 6)
    rows[1]["subword_ends"][last] = 7
    assert (
        check_windows(batch_of(rows), vocabulary)
        == "row 1: subword_starts: a subword starts or ends with white space"
    )


def test_the_first_broken_row_is_named(rows: list[Row], vocabulary: Vocabulary) -> None:
    rows[2]["codepoints"][0] = 0
    rows[1]["sentence_starts"] = []
    assert check_windows(batch_of(rows), vocabulary) == "row 1: sentence_starts: is empty"


def test_long_words_and_windows() -> None:
    text = "x" * 129
    row = {"text": text, "word_starts": [0], "word_ends": [129]}
    assert check_windows(batch_of([row])) == "row 0: word_ends: a word of more than 128 bytes"
    assert check_windows(batch_of([{"text": "x" * (MAX_WINDOW_CHARACTERS + 1)}])) is not None
    assert check_windows(batch_of([{"text": ""}])) == "row 0: text: is empty"


def test_other_types_and_nulls() -> None:
    wrong = pa.RecordBatch.from_pylist([{"text": "a", "codepoints": [97]}])
    assert str(check_windows(wrong)).startswith("row 0: the columns are not those of schema version 1")
    unknown = pa.RecordBatch.from_pylist([{"text": "a", "letters": [97]}])
    assert "no column 'letters'" in str(check_windows(unknown))
    null = pa.RecordBatch.from_arrays([pa.array([None], pa.string())], schema=schema(["text"]))
    assert check_windows(null) == "row 0: text: holds nulls"
