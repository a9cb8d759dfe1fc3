"""Noise in examples: what it leaves alone, and that it is the example's own."""

import pytest

from tokenfree.preprocess.text.noise import SCHEMES, Scheme
from tokenfree.train.tasks.examples.example import TaggedExample, TextExample
from tokenfree.train.tasks.examples.noise import noisy_tagged, noisy_text

WORDS = ("A", "grey", "goose", "of", "straße") * 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_keep_their_tags(scheme: Scheme) -> None:
    tags = ("O", "B-X", "I-X", "O", "B-Y") * 8
    for number in range(20):
        noised = noisy_tagged(TaggedExample(f"x.conll:{number}", WORDS, tags), scheme, seed=0)
        assert (noised.key, noised.tags, len(noised.words)) == (f"x.conll:{number}", tags, len(WORDS))
        assert all(noised.words)
        assert noised.words != WORDS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_keep_their_labels(scheme: Scheme) -> None:
    text = " ".join(WORDS)
    noised = noisy_text(TextExample("x.csv:2", text, text, "yes"), scheme, seed=0)
    assert (noised.key, noised.label) == ("x.csv:2", "yes")
    assert text not in (noised.text, noised.second)
    assert noisy_text(TextExample("x.csv:2", text, None, 2.5), scheme, seed=0).second is None
    assert noisy_text(TextExample("x.csv:3", ""), scheme, seed=0).text == ""


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "uppercase"])
def test_the_same_again_for_a_seed_and_a_key_alone(scheme: Scheme) -> None:
    text = " ".join(WORDS)
    examples = [TextExample(key, text, text) for key in ("x.csv:2", "x.csv:3")]
    noised = [noisy_text(one, scheme, seed=seed) for one in examples for seed in (0, 1)]
    assert noised == [noisy_text(one, scheme, seed=seed) for one in examples for seed in (0, 1)]
    assert len({part for one in noised for part in (one.text, one.second)}) == 8
    words = noisy_tagged(TaggedExample("x.conll:1", ("goose" * 9,) * 9), scheme, seed=0).words
    assert len(set(words)) == 9
