"""Vectors of words and of their characters from texts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.text_encoder import TextEncoder, WordEncoder, load_encoder
from tokenfree.train.pretrain import PretrainResult, pretrain
from tokenfree.workflows.recipes import library

SMALL = {
    "model": {"width": 32, "character_width": 16, "trunk": {"layers": 1, "heads": 2}},
    "train": {"steps": 4, "global_batch": 8, "validation_windows": 8, "threads": 1},
}
MakeRun = Callable[..., PretrainResult]


@pytest.fixture(scope="module")
def make_run(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    def make(name: str, **changes: Any) -> PretrainResult:
        mapping = merge(merge(library.read_based(name), SMALL), changes)
        recipe = build(PretrainRecipe, mapping, source="test")
        return pretrain(recipe, corpus, str(tmp_path_factory.mktemp("run")))

    return make


@pytest.fixture(scope="module")
def result(make_run: MakeRun) -> PretrainResult:
    return make_run("byte2word-tiny")


@pytest.fixture(scope="module")
def encoder(result: PretrainResult) -> WordEncoder:
    loaded = load_encoder(result.run)
    assert isinstance(loaded, WordEncoder)
    return loaded


def test_vectors_of_texts(encoder: TextEncoder) -> None:
    out = encoder(["any text", "日本 é"])
    assert out.words is not None
    assert out.word_mask is not None
    assert out.characters.shape == (2, 10, 32)
    assert out.mask.int().tolist() == [[1, 1, 1, 1, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]]
    assert out.words.shape == (2, 5, 32)
    assert out.word_mask.int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert out.pooled.shape == (2, 32)
    assert not out.pooled.requires_grad
    assert not out.pooled_is_trained
    torch.testing.assert_close(out.cls, out.words[:, 0])
    # A character each, the white space left out.
    torch.testing.assert_close(out.mean[1], out.words[1, 1:4].mean(dim=0))
    words_of_characters = [[0, 1, 1, 1, None, 2, 2, 2, 2, 3], [0, 1, 2, None, 3, 4, None, None, None, None]]
    for row, words in enumerate(words_of_characters):
        for place, word in enumerate(words):
            wanted = torch.zeros(32) if word is None else out.words[row, word]
            assert torch.equal(out.characters[row, place], wanted)


def test_a_text_does_not_depend_on_its_neighbours(encoder: TextEncoder) -> None:
    together, alone = encoder(["two words", "x " * encoder.max_characters]), encoder(["two words"])
    pairs = ((getattr(each, name) for each in (together, alone)) for name in together._fields)
    for one, other in ((one, other) for one, other in pairs if isinstance(one, torch.Tensor)):
        cut = (slice(1), *(slice(size) for size in other.shape[1:]))
        torch.testing.assert_close(one[cut].float(), other.float(), rtol=1e-4, atol=1e-5)


def test_every_word_has_a_vector(encoder: TextEncoder) -> None:
    """The words are those of preprocessing, camel case, punctuation, scripts and all."""
    for text in ("don't HTMLParser2Go", "ไทย ½ \U0001f469\u200d\U0001f52c", "", "  ", "a\u0301B"):
        out = encoder([text])
        assert out.words is not None
        assert out.words.shape[1] == len(word_spans(text)[0]) + 2
        visible = [not character.isspace() for character in text]
        assert out.mask[0].tolist() == [True, *visible, True]
        assert out.words.isfinite().all()


def test_special_bytes_cannot_be_injected(encoder: TextEncoder) -> None:
    """Control characters 0 to 4 are taken out, and so are lone surrogates, which have no bytes."""
    plain, injected = encoder(["some words"]), encoder(["so\x04me\x00 wor\ud800ds\x02"])
    assert plain.words is not None
    assert injected.words is not None
    torch.testing.assert_close(injected.words, plain.words)
    assert np.flatnonzero(~injected.mask[0].numpy()).tolist() == [3, 6, 7, 11, 14]


def test_texts_that_cannot_be_read(encoder: TextEncoder) -> None:
    with pytest.raises(
        UserError, match=r"text 1 has 63 words of 63 bytes and this model reads 62 of 382\. Cut it"
    ):
        encoder(["a", "b " * 63])
    with pytest.raises(UserError, match="text 0 has 4 words of 384 bytes"):
        encoder([("b" * 96 + " ") * 4])
    with pytest.raises(UserError, match="list of at least one text"):
        encoder("one text")
    assert encoder(["\U0001f600 " * encoder.max_characters]).words is not None


def test_evaluation_repeats_the_validation(result: PretrainResult, corpus: str) -> None:
    found = evaluate(result.run, corpus)
    assert found["step"] == 4
    assert found["validation_loss"] == result.validation_loss
    assert found["baseline_clue"] == result.baselines["clue"]


def test_subwords_as_words_are_not_in_texts(make_run: MakeRun) -> None:
    encoder = load_encoder(make_run("byte2word-subwords-tiny").run)
    with pytest.raises(UserError, match="this model reads bytes, not texts"):
        encoder(["text"])
