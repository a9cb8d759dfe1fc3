"""Hashed features of words: the same for the same strings, in any batch, and different for different ones."""

import numpy as np

from tokenfree.preprocess.text.specials import MASK
from tokenfree.train.batches.ngrams import (
    MAX_AFFIX,
    NO_FEATURE,
    SubstringHashes,
    context_features,
    path_targets,
    word_features,
)

# Numbers of columns: the bias, of the word itself, of its affixes, of its neighbours.
BIAS, LOWER, EXACT, SHAPE, AFFIXES = 0, 1, 2, 3, slice(4, 4 + 2 * MAX_AFFIX)
BEFORE, AFTER = (
    slice(4 + 2 * MAX_AFFIX + 3, 4 + 2 * MAX_AFFIX + 6),
    slice(4 + 2 * MAX_AFFIX + 6, 4 + 2 * MAX_AFFIX + 9),
)
TRIGRAMS = slice(4 + 2 * MAX_AFFIX + 12, None)


def test_substring_hashes_depend_on_content_alone() -> None:
    text = "abcabcabx"
    hashes = SubstringHashes(np.array([ord(character) for character in text]))
    spans = [(start, end) for start in range(len(text)) for end in range(start + 1, len(text) + 1)]
    by_text: dict[str, set[int]] = {}
    for start, end in spans:
        by_text.setdefault(text[start:end], set()).add(int(hashes(np.array([start]), np.array([end]))[0]))
    assert all(len(values) == 1 for values in by_text.values())
    assert len(set.union(*by_text.values())) == len(by_text)


def test_word_features_ignore_other_sentences_of_the_batch() -> None:
    sentences = [("Ana", "Ruiz", "sang"), ("Lima",), ("in", "Ana", "ruiz")]
    together = word_features(sentences)
    for sentence, rows in zip(sentences, np.split(together, [3, 4]), strict=True):
        alone = word_features([sentence])
        np.testing.assert_array_equal(rows[:, : alone.shape[1]], alone)
        assert (rows[:, alone.shape[1] :] == NO_FEATURE).all()


def test_word_features_share_case_shape_and_affixes() -> None:
    lower, upper, other = word_features([("anabel",), ("ANABEL",), ("Anabet",)])
    assert lower[LOWER] == upper[LOWER]
    assert lower[EXACT] != upper[EXACT]
    assert lower[SHAPE] != upper[SHAPE]
    assert np.array_equal(lower[AFFIXES], upper[AFFIXES])
    assert np.array_equal(lower[TRIGRAMS], upper[TRIGRAMS])
    # Prefixes and suffixes of one to five letters alternate.
    assert (lower[AFFIXES] == other[AFFIXES]).tolist() == [True, False] * MAX_AFFIX
    shapes = word_features([("Aab12",), ("Xyyyz9",), ("xab1",)])[:, SHAPE]
    assert shapes[0] == shapes[1] != shapes[2]


def test_word_features_name_the_neighbours() -> None:
    features = word_features([("x", "Ana", "y"), ("y", "Eva", "x"), ("Ana",)])
    assert np.array_equal(features[1, BEFORE], word_features([("x", "Eva")])[1, BEFORE])
    assert np.array_equal(features[6, BEFORE], features[0, BEFORE]), "no word before"
    assert not np.array_equal(features[1, BEFORE], features[4, BEFORE])


def test_word_features_of_nothing_are_empty() -> None:
    assert word_features([(), ()]).shape[0] == 0


def test_context_features_see_the_visible_characters_around_a_run() -> None:
    def features_of(text: str, position: int) -> list[int]:
        """Features of a position of a line in which `#` are hidden."""
        return context_features(line_of(text), np.array([0]), np.array([position]))[0].tolist()

    expected = features_of("the cat ##### on it", 8)
    assert features_of("see the cat ##### on it by", 12)[:9] == expected[:9], "6 characters before"
    assert features_of("a cat ##### on it", 6)[:8] == expected[:8] != features_of("a cot ##### on it", 6)[:8]
    # The whole run is skipped, and the place in it is a feature.
    other_place = features_of("the cat ##### on it", 10)
    assert other_place[:2] == expected[:2]
    assert other_place[3:] == expected[3:]
    assert other_place[2] != expected[2]
    # The run of a visible character is that character.
    assert features_of("the cat #a### on it", 9)[1] == features_of("the cat # on it", 8)[1] != expected[1]
    # Another line of the batch changes nothing.
    lines = np.concatenate([line_of("x" * 19), line_of("the cat ##### on it")])
    assert context_features(lines, np.array([1]), np.array([8]))[0].tolist() == expected


def line_of(text: str) -> np.ndarray:
    return np.array([[MASK if character == "#" else ord(character) for character in text]])


def test_path_targets_hide_each_subword_once() -> None:
    text = "one two six ten"
    codepoints = np.array([[ord(character) for character in text]] * 2)
    starts = np.array([0, 4, 8, 12] * 2)
    rows = np.repeat([0, 1], 4)
    spans = codepoints, rows, starts, np.full(8, 3), np.arange(8)
    arrays = path_targets(*spans, np.array([5, 6]), 0)
    assert arrays["path_ids"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert arrays["path_mask"].all()
    again = path_targets(codepoints[:1], rows[:4], starts[:4], np.full(4, 3), np.arange(4), np.array([5]), 0)
    np.testing.assert_array_equal(again["path_ngrams"][0], arrays["path_ngrams"][0])
    # The features of a subword do not depend on its own characters.
    other = codepoints.copy()
    other[:, 4:7] = ord("z")
    changed = path_targets(other, *spans[1:], np.array([5, 6]), 0)
    np.testing.assert_array_equal(changed["path_ngrams"][:, 1], arrays["path_ngrams"][:, 1])
    assert (changed["path_ngrams"] != arrays["path_ngrams"]).any()
