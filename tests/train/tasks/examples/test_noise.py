"""Noise in examples: what it leaves alone, and that it is the example's own."""

from typing import get_args

import pytest

from tokenfree.train.tasks.examples.noise import IN_WORDS, Noise, NoiseScheme, noisy
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.examples.texts import TextExample

SCHEMES: tuple[NoiseScheme, ...] = get_args(NoiseScheme)
WORDS = ("A", "grey", "goose", "of", "straße") * 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_keep_their_tags(scheme: NoiseScheme) -> None:
    tags = ("O", "B-X", "I-X", "O", "B-Y") * 8
    for number in range(20):
        noised = noisy(TaggedExample(f"x.conll:{number}", WORDS, tags), scheme, seed=0)
        assert (noised.key, noised.tags, len(noised.words)) == (f"x.conll:{number}", tags, len(WORDS))
        assert all(noised.words)
        assert noised.words != WORDS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_keep_their_labels(scheme: NoiseScheme) -> None:
    text = " ".join(WORDS)
    noised = noisy(TextExample("x.csv:2", text, text, "yes"), scheme, seed=0)
    assert (noised.key, noised.label) == ("x.csv:2", "yes")
    assert text not in (noised.text, noised.second)
    assert noisy(TextExample("x.csv:2", text, None, 2.5), scheme, seed=0).second is None
    assert noisy(TextExample("x.csv:3", ""), scheme, seed=0).text == ""


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "uppercase"])
def test_the_same_again_for_a_seed_and_a_key_alone(scheme: NoiseScheme) -> None:
    text = " ".join(WORDS)
    examples = [TextExample(key, text, text) for key in ("x.csv:2", "x.csv:3")]
    noised = [noisy(one, scheme, seed=seed) for one in examples for seed in (0, 1)]
    assert noised == [noisy(one, scheme, seed=seed) for one in examples for seed in (0, 1)]
    assert len({part for one in noised for part in (one.text, one.second)}) == 8
    words = noisy(TaggedExample("x.conll:1", ("goose" * 9,) * 9), scheme, seed=0).words
    assert len(set(words)) == 9


def test_the_texts_before_are_kept_where_their_words_count() -> None:
    text, tagged = TextExample("x.csv:2", "One text", "another"), TaggedExample("x.conll:1", WORDS)
    assert noisy(text, IN_WORDS, seed=0).before == ("One text", "another")
    assert noisy(tagged, IN_WORDS, seed=0).before == WORDS
    assert noisy(text, IN_WORDS, seed=0).text == noisy(text, "random_case", seed=0).text
    assert {noisy(text, scheme, seed=0).before for scheme in SCHEMES if scheme != IN_WORDS} == {None}


def test_training_and_evaluation_have_noise_of_their_own() -> None:
    examples = [TextExample(f"x.csv:{number}", " ".join(WORDS)) for number in range(3)]
    noise = Noise(train="uppercase", evaluation="drop", rate=0.5)
    assert noise.add(examples, "train") == [noisy(one, "uppercase", 0, 0.5) for one in examples]
    assert (
        noise.add(examples, "dev")
        == noise.add(examples, "test")
        == [noisy(e, "drop", 0, 0.5) for e in examples]
    )
    assert noise.add(examples, "train") != noise.add(examples, "dev")
    left = [len(one.text) / len(" ".join(WORDS)) for one in noise.add(examples, "dev")]
    assert left == pytest.approx([0.5] * 3, abs=0.1)
    (tagged,) = noise.add([TaggedExample("x.conll:1", ("goose" * 200,))], "dev")
    assert len(tagged.words[0]) / 1000 == pytest.approx(0.5, abs=0.05)
    assert (
        Noise(train="drop").add(examples, "dev")
        == Noise(evaluation="drop").add(examples, "train")
        == examples
    )
