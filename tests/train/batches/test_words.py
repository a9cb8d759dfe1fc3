"""Words of a text whose case changed after they were found."""

from hypothesis import given
from hypothesis import strategies as st

from tokenfree.preprocess.text.words import MAX_WORD_BYTES
from tokenfree.train.batches.words import WordsOfText, text_words
from tokenfree.train.tasks.examples.noise import add_noise

TEXTS = st.text(
    st.sampled_from("aZß İıſΣςσǅéЖж1 _\ue003\x04日👩\U0001f600Ⱥⱥ\ud800")
    | st.characters(exclude_categories=("Cs",))
)


def spelled(words: WordsOfText) -> list[str]:
    encoded = words.utf8.tobytes()
    return [encoded[start:end].decode() for start, end in zip(words.starts, words.ends, strict=True)]


@given(TEXTS)
def test_the_words_of_the_text_before_in_the_letters_of_the_text(text: str) -> None:
    noised = add_noise(text, "random_case", seed=0, example=5)
    now, before = text_words(noised, text), text_words(text)
    lower = [[letter.lower() for letter in word] for word in spelled(now)]
    assert lower == [[letter.lower() for letter in word] for word in spelled(before)]
    assert now.word_of.tolist() == before.word_of.tolist()
    assert spelled(text_words(text, text)) == spelled(before)


def test_random_case_shatters_words_only_before_they_are_found() -> None:
    text = "several ordinary words"
    noised = add_noise(text, "random_case", seed=0, example=0)
    assert spelled(text_words(noised, text)) == noised.split()
    assert len(text_words(noised).starts) > 6


def test_letters_whose_other_case_has_more_bytes() -> None:
    """Of two letters in lower case six bytes, in upper case four."""
    words = text_words(add_noise("ȺȺ " * 40, "random_case", seed=0, example=0), "ȺȺ " * 40)
    assert {len(word) for word in spelled(words)} == {2}
    assert set((words.ends - words.starts).tolist()) == {4, 5, 6}
    longest = text_words("ⱥ" * 64, "Ⱥ" * 64)
    assert (longest.ends - longest.starts).max() <= MAX_WORD_BYTES
    assert "".join(spelled(longest)) == "ⱥ" * 64
