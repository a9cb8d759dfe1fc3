"""Similarities of spelling by hand, correlations of known ones, and vectors that are those of the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.analyses.conftest import MakeModel
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.analyses import similarity as module
from tokenfree.train.analyses.similarity import (
    Place,
    correlate,
    cosines,
    have_vectors,
    similarity,
    spelling_similarities,
    word_vectors,
)
from tokenfree.train.analyses.subject import AnalysedModel
from tokenfree.train.inference.text_encoder import TextEncoder, WordEncoder
from tokenfree.train.model.encoder import ModelConfig

BYTES: dict[str, Any] = {
    "width": 16,
    "character_width": 8,
    "embedder": {"name": "word_bytes"},
    "downsampler": {"name": "word_pooling", "max_words": 64},
    "upsampler": {"name": "subword_queries"},
    "trunk": {"layers": 1, "heads": 2, "inner_width": 16},
}


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLICATES", 200)


@pytest.fixture
def words_of_bytes() -> AnalysedModel:
    torch.manual_seed(0)
    return AnalysedModel("bytes", WordEncoder(build(ModelConfig, BYTES, source="test").build(), length=256))


@pytest.fixture
def subwords(corpus: str) -> AnalysedModel:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    config = {
        "width": 16,
        "embedder": {"name": "subword_table", "size": vocabulary.size + 3, "max_characters": 32},
        "downsampler": {"name": "identity"},
        "upsampler": {"name": "identity"},
        "trunk": {"layers": 1, "heads": 2, "inner_width": 16},
    }
    torch.manual_seed(0)
    reader = TextEncoder(build(ModelConfig, config, source="test").build(), length=16)
    return AnalysedModel("subwords", reader, corpus, vocabulary)


def test_similarities_by_hand() -> None:
    pairs = [("kitten", "sitting"), ("ca", "abc"), ("MARTHA", "MARHTA"), ("live", "liver"), ("same", "same")]
    found = {name: values.tolist() for name, values in spelling_similarities(pairs).items()}
    assert found["levenshtein"] == pytest.approx([1 - 3 / 7, 1 - 3 / 3, 1 - 2 / 6, 1 - 1 / 5, 1])
    # A transposed pair counts once, also with a letter between ("ca" to "abc" takes two steps).
    assert found["damerau_levenshtein"] == pytest.approx([1 - 3 / 7, 1 - 2 / 3, 1 - 1 / 6, 1 - 1 / 5, 1])
    jaro = [(4 / 6 + 4 / 7 + 1) / 3, 0, (1 + 1 + 5 / 6) / 3, (1 + 4 / 5 + 1) / 3, 1]
    assert found["jaro"] == pytest.approx(jaro)
    prefixes = [0, 0, 3, 4, 4]  # common, at most four; each takes a tenth of what is missing
    assert found["jaro_winkler"] == pytest.approx(
        [value + 0.1 * size * (1 - value) for value, size in zip(jaro, prefixes, strict=True)]
    )
    assert found["lcs"] == pytest.approx([4 / 7, 1 / 3, 5 / 6, 4 / 5, 1])


def test_correlations_of_known_order() -> None:
    rng = np.random.default_rng(0)
    cosine, noise = rng.normal(size=300), rng.normal(size=300)
    spelling = {"same": np.exp(3 * cosine), "opposite": -cosine, "none": noise, "flat": np.ones(300)}
    found = correlate(cosine, spelling, np.arange(300), np.random.default_rng(1))
    assert found["same"] == pytest.approx((1, 1, 1))
    assert found["opposite"] == pytest.approx((-1, -1, -1))
    spearman, low, high = found["none"]
    assert low < spearman < high
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(300), rel=0.25)
    assert all(np.isnan(value) for value in found["flat"])
    # Ties have the mean of their ranks: 1.5, 1.5, 3 against 1, 2, 3.
    tied = correlate(np.array([1.0, 1.0, 2.0]), {"x": np.array([1.0, 2.0, 3.0])}, np.arange(3), rng)["x"][0]
    assert tied == pytest.approx(np.sqrt(3) / 2)


def test_pairs_of_one_lemma_are_drawn_together() -> None:
    """The same pairs four times over tell no more: intervals over lemmas stay as wide, those over pairs would halve."""
    rng = np.random.default_rng(0)
    cosine = rng.normal(size=100)
    spelling = {"x": cosine + rng.normal(size=100)}
    once = correlate(cosine, spelling, np.arange(100), np.random.default_rng(1))["x"]
    four = correlate(
        np.tile(cosine, 4),
        {"x": np.tile(spelling["x"], 4)},
        np.tile(np.arange(100), 4),
        np.random.default_rng(1),
    )["x"]
    assert four[0] == pytest.approx(once[0], abs=1e-3)
    assert four[2] - four[1] == pytest.approx(once[2] - once[1], rel=0.25)


def test_cosines() -> None:
    one, other = np.array([[1.0, 0], [2, 2], [0, 0]]), np.array([[3.0, 0], [0, 1], [1, 1]])
    found = cosines(one, other)
    assert found[:2] == pytest.approx([1, np.sqrt(0.5)])
    assert np.isnan(found[2])


def test_a_word_of_bytes_is_the_unit_that_enters_the_stack(words_of_bytes: AnalysedModel) -> None:
    model = words_of_bytes
    words = ["listen", "silent", "a", "日本", "liver"]
    vectors = torch.from_numpy(word_vectors(model, words))
    entered = []
    hook = model.encoder.trunk.register_forward_pre_hook(lambda module, given: entered.append(given[0]))
    model.reader(["silent"])
    hook.remove()
    torch.testing.assert_close(vectors[1], entered[0][0, 1])
    torch.testing.assert_close(vectors[0], vectors[1])  # the same bytes in another order
    assert not torch.allclose(vectors[0], vectors[4], atol=1e-3)
    out = model.reader(["liver"])
    assert out.words is not None
    torch.testing.assert_close(torch.from_numpy(word_vectors(model, words, "output"))[4], out.words[0, 1])
    kinds: dict[Place, list[bool]] = {
        "down": [True, False, False, False],
        "output": [True, True, True, False],
    }
    for place, expected in kinds.items():
        assert have_vectors(model, ["liver", "don't", "camelCase", "x" * 4000], place).tolist() == expected


def test_a_subword_is_its_row_of_the_table(subwords: AnalysedModel) -> None:
    vocabulary = subwords.vocabulary
    single = [piece[1:] for piece in vocabulary.pieces if piece.startswith("▁") and piece[1:].isalpha()][:5]
    assert have_vectors(subwords, [*single, "qzqzqz"]).tolist() == [True] * 5 + [False]
    vectors = torch.from_numpy(word_vectors(subwords, single))
    ids = [vocabulary.pieces.index(f"▁{word}") for word in single]
    torch.testing.assert_close(vectors, subwords.encoder.embedder.table.rows.weight[ids].detach())
    assert have_vectors(subwords, ["qzqzqz", "q" * 40], "output").tolist() == [True, False]
    assert word_vectors(subwords, ["qzqzqz"], "output").shape == (1, 16)


def test_a_word_of_characters_is_the_mean_of_its_units(make_model: MakeModel) -> None:
    model = make_model()
    vectors = torch.from_numpy(word_vectors(model, ["ab", "ba", "longer"]))
    torch.testing.assert_close(vectors[0], vectors[1])  # without positions at the input
    alone = model.encoder.embedder(torch.tensor([[ord("a"), ord("b")]])).mean(dim=1)[0].detach()
    torch.testing.assert_close(vectors[0], alone)
    assert not torch.allclose(
        vectors[0], torch.from_numpy(word_vectors(model, ["ab"], "output"))[0], atol=1e-3
    )


def test_vectors_of_sets_of_letters_follow_their_spelling(
    words_of_bytes: AnalysedModel, tmp_path: Path
) -> None:
    """Even untrained: what is pooled from the same bytes is alike."""
    stems = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrt"]
    path = tmp_path / "art"
    path.write_text(
        "".join(f"{stem}\t{stem}{ending}\n" for stem in stems for ending in ("", "s", "ing", "'s", "edly"))
    )
    found = similarity(words_of_bytes, [str(path)], 100, seed=3)
    assert found["words"] == {"art": {"in_file": 5 * 125, "usable": 4 * 125}}
    rows = {(row["kind"], row["measure"]): row for row in found["rows"]}
    assert len(rows) == 15
    both = rows["both", "lcs"]
    assert both["pairs"] == 200
    assert both["lemmas"] == 100
    assert both["low"] > 0.5
    assert rows["related", "lcs"]["mean_cosine"] > rows["random", "lcs"]["mean_cosine"]
    assert similarity(words_of_bytes, [str(path)], 100, seed=3) == found
    assert similarity(words_of_bytes, [str(path)], 100, seed=4)["rows"] != found["rows"]


def test_words_of_a_vocabulary_alone(
    words_of_bytes: AnalysedModel, subwords: AnalysedModel, tmp_path: Path
) -> None:
    path = tmp_path / "art"
    path.write_text("qzqzqz\tqzqzqzs\nother\tothers\n")
    with pytest.raises(UserError, match="needs two lemmas"):
        similarity(words_of_bytes, [str(path)], vocabulary=subwords.vocabulary)
    with pytest.raises(UserError, match=r"art: 2 pairs of words of one lemma that bytes reads as one each"):
        similarity(words_of_bytes, [str(path)])
