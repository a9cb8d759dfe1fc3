"""Windows of documents: their columns agree with the functions they come from, row by row, in every script."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.windows import build_windows
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig, WindowConfig
from tokenfree.preprocess.dataset.verify import check_windows
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.records import Document, schema
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.words import word_spans

TEXTS = st.text(
    st.sampled_from("aB. \n!语。é\u0301ข👩\u200d🔬_") | st.characters(codec="utf-8"), max_size=120
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    corpus = ["It was the best of times, it was the worst of times. Nothing else was like it. 语言。"] * 5
    return Vocabulary.load(
        train_vocabulary(
            corpus, VocabularyConfig(size=287, required_characters="none", character_coverage=1.0), 0
        )
    )


def document(text: str, language: str = "en", name: str = "books:a") -> Document:
    return Document(name, language, "", normalize(text))


def config_of(max_characters: int = 16, pack: str = "none", **changes: object) -> PreprocessConfig:
    window = WindowConfig(max_characters=max_characters, pack=pack)  # pyright: ignore[reportArgumentType]
    return PreprocessConfig(window=window, **changes)  # pyright: ignore[reportArgumentType]


def test_example(vocabulary: Vocabulary) -> None:
    batch = build_windows([document("It was fé. So camelCase. 语!")], config_of(22), vocabulary)
    assert batch["text"].to_pylist() == ["It was fé.", "So camelCase. 语!"]
    row = batch.slice(0, 1).to_pylist()[0]
    assert (row["document"], row["language"]) == ("books:a", "en")
    assert row["codepoints"] == [ord(character) for character in "It was fé."]
    assert [index for index, space in enumerate(row["whitespace"]) if space] == [2, 6]
    assert (row["word_starts"], row["word_ends"]) == ([0, 3, 7, 10], [2, 6, 10, 11])
    assert row["sentence_starts"] == [0]
    assert batch["sentence_starts"].to_pylist()[1] == [0, 14]
    assert batch["word_starts"].to_pylist()[1] == [0, 3, 8, 12, 14, 17]


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXTS, max_size=4), max_characters=st.integers(16, 40), packed=st.booleans())
def test_columns_agree_with_the_single_functions(
    vocabulary: Vocabulary, texts: list[str], max_characters: int, packed: bool
) -> None:
    documents = [document(text, name=f"books:{index}") for index, text in enumerate(texts)]
    pack = "across_documents" if packed else "none"
    batch = build_windows(documents, config_of(max_characters, pack), vocabulary)
    assert batch.schema.equals(schema(), check_metadata=True)
    assert check_windows(batch, vocabulary) is None
    for row in batch.to_pylist():
        text = row["text"]
        encoding = vocabulary.encode_flat([text])
        assert 0 < len(text) <= max_characters
        assert row["codepoints"] == [ord(character) for character in text]
        assert row["whitespace"] == [character.isspace() for character in text]
        assert [row["word_starts"], row["word_ends"]] == [column.tolist() for column in word_spans(text)]
        assert row["subword_ids"] == encoding.ids.tolist()
        assert row["subword_starts"] == encoding.starts.tolist()
        assert row["subword_ends"] == encoding.ends.tolist()
    everything = "".join("".join(document.text.split()) for document in documents)
    assert "".join("".join(text.split()) for text in batch["text"].to_pylist()) == everything


def test_sentences_are_those_of_the_document() -> None:
    text = "One two. Three four. Five six seven. Eight."
    batch = build_windows([document(text)], config_of(36), None)
    assert batch["text"].to_pylist() == [text[:36], text[37:]]
    assert batch["sentence_starts"].to_pylist() == [[0, 9, 21], [0]]
    assert sentence_starts(text).tolist() == [0, 9, 21, 37]


def test_packing_joins_neighbours_of_one_language() -> None:
    documents = [
        document("One. Two.", name="books:1"),
        document("Three.", name="books:2"),
        document("Four. Five. Six.", name="books:3"),
        document("Sieben.", "de", name="books:4"),
        document("Eight.", name="books:5"),
    ]
    batch = build_windows(documents, config_of(24, "across_documents"), None)
    assert batch["text"].to_pylist() == ["One. Two.\nThree.\nFour.", "Five. Six.", "Sieben.", "Eight."]
    assert batch["document"].to_pylist() == ["books:1", "books:3", "books:4", "books:5"]
    assert batch["language"].to_pylist() == ["en", "en", "de", "en"]
    assert batch["sentence_starts"].to_pylist()[0] == [0, 5, 10, 17]


def test_only_the_columns_asked_for() -> None:
    batch = build_windows([document("Some text.")], config_of(columns=("whitespace", "text")), None)
    assert batch.schema.names == ["text", "whitespace"]


def test_without_a_vocabulary_subwords_are_empty() -> None:
    batch = build_windows([document("Some text."), document("More.")], config_of(), None)
    for name in ("subword_ids", "subword_starts", "subword_ends"):
        assert batch[name].to_pylist() == [[], []]


@pytest.mark.parametrize("documents", [[], [document(" ")]])
def test_nothing_gives_no_rows(documents: list[Document], vocabulary: Vocabulary) -> None:
    batch = build_windows(documents, config_of(), vocabulary)
    assert batch.num_rows == 0
    assert batch.schema.equals(schema())


def test_real_text_in_every_script(vocabulary: Vocabulary, test_data: Path) -> None:
    files = [
        *sorted(test_data.glob("udhr/*.txt")),
        test_data / "nasty/blns.txt",
        test_data / "nasty/emoji-test.txt",
    ]
    documents = [document(file.read_text(encoding="utf-8"), name=file.stem) for file in files]
    batch = build_windows(documents, config_of(2040), vocabulary)
    assert check_windows(batch, vocabulary) is None
    for row in batch.to_pylist():
        assert np.array(row["codepoints"], dtype="<u4").tobytes().decode("utf-32-le") == row["text"]
    assert pa.Table.from_batches([batch]).num_rows == batch.num_rows


def test_parts_do_not_change_the_windows(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> None:
    documents = [document("It was so. " * 20, name=f"books:{index}") for index in range(5)]
    whole = build_windows(documents, config_of(), vocabulary)
    monkeypatch.setattr("tokenfree.preprocess.features.columns._PART_CHARACTERS", 50)
    batches = list(iterate_windows(documents, config_of(), vocabulary))
    parts = [batch.rows for batch in batches]
    assert len(parts) > 5
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))
    assert build_windows(documents, config_of(), vocabulary).equals(whole)
    assert sum(batch.characters for batch in batches) == sum(map(len, whole["text"].to_pylist()))
    assert sum(batch.subwords for batch in batches) == len(whole["subword_ids"].flatten())
