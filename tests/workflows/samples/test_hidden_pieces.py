"""Hidden pieces of held-out windows: which they are, what surrounds them, and which guesses are right."""

import pydoc_data.topics as topics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.train.conftest import RECIPE, SUBWORDS, WORDS, teach, write_corpus
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.inference.predictor import Predictor, load_predictor
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows.samples.hidden_pieces import hidden_pieces

OBJECTIVES: dict[str, Mapping[str, Any]] = {
    "canine_s": {"name": "canine_s"},
    "canine_c": {"name": "canine_c", "heads": 2, "buckets": 64},
    "masked_characters": {"name": "masked_characters", "buckets": 64},
    "masked_subwords": {"name": "masked_subwords"},
    "byte2word": {"name": "byte2word", "bytes_per_word": 4},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Windows of 100 characters, more than the models read."""
    texts = [(name, text[:2000]) for name, text in sorted(topics.topics.items())[:20]]
    return write_corpus(tmp_path_factory.mktemp("data"), texts, max_characters=100, vocabulary=400)


@pytest.fixture(scope="module")
def predictor_of(data: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Predictor]:
    """The model of an objective, after one step, as it was saved."""
    made: dict[str, str] = {}

    def predictor(name: str) -> Predictor:
        if name not in made:
            over = {"masked_subwords": SUBWORDS, "byte2word": WORDS}.get(name, {})
            train = {**RECIPE["train"], "steps": 1, "validate_every_steps": 1, "length": 144 if "2" in name else 64}
            train["length"] = 32 if name == "masked_subwords" else train["length"]
            mapping = {"model": {**RECIPE["model"], **over}, "objective": OBJECTIVES[name], "train": train}
            recipe = build(PretrainRecipe, mapping, source="test")
            made[name] = pretrain(recipe, data, str(tmp_path_factory.mktemp(name) / "run")).run
        return load_predictor(made[name])

    return predictor


def window(data: str, number: int) -> str:
    (text,) = ShardReader(data, "validation").rows(["text"], np.array([0]), np.array([number]))["text"]
    return text.tobytes().decode()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_sample_is_fixed_and_of_held_out_windows(
    name: str, data: str, predictor_of: Callable[[str], Predictor]
) -> None:
    predictor = predictor_of(name)
    found = hidden_pieces(predictor, data, num_windows=10)
    total = ShardReader(data, "validation").shards[0].rows
    assert [piece.window for piece in found] == [at * total // 10 for at in range(10)]
    assert hidden_pieces(predictor, data, num_windows=10) == found
    for piece in found:
        assert piece.before + piece.text + piece.after == window(data, piece.window)
        assert piece.text.strip() == piece.text != ""
        assert len(piece.guesses) == 5
        chances = [guess.probability for guess in piece.guesses]
        assert chances == sorted(chances, reverse=True)
    assert len({len(piece.before) for piece in found}) > 5
    if name in ("canine_s", "canine_c", "masked_characters"):
        assert all(len(guess.text) == len(piece.text) for piece in found for guess in piece.guesses)


@pytest.mark.parametrize("name", ["canine_s", "masked_subwords", "byte2word"])
def test_what_is_guessed_is_right(name: str, data: str, predictor_of: Callable[[str], Predictor]) -> None:
    """A head that knows one answer is right where that is hidden, and nowhere else."""
    predictor = predictor_of(name)
    assert predictor.vocabulary is not None
    pieces = predictor.vocabulary.pieces()
    frequent = Counter(piece.text for piece in hidden_pieces(predictor, data, num_windows=60)).most_common()
    text = next(text for text, _ in frequent if f"▁{text}" in pieces)
    teach(predictor, *(id_ for id_, piece in enumerate(pieces) if piece.lstrip("▁") == text))
    found = hidden_pieces(predictor, data, num_windows=60)
    assert {piece.right for piece in found if piece.text == text} <= {0, 1}  # it may begin a word or not
    sure = [piece for piece in found if piece.right is not None and piece.guesses[piece.right].probability > 1e-7]
    assert {piece.text for piece in sure} == {text}


def test_characters_of_one_class_are_equal(data: str, predictor_of: Callable[[str], Predictor]) -> None:
    """Of 64 classes "(" shares one with "h", which the data have more of."""
    predictor = predictor_of("masked_characters")
    teach(predictor, ord("(") % 64)
    found = [piece for piece in hidden_pieces(predictor, data, num_windows=200) if piece.text == "("]
    assert found
    assert {(piece.right, piece.guesses[0].text) for piece in found} == {(0, "h")}


def test_a_piece_in_a_wide_window_has_what_fits_around_it(
    data: str, predictor_of: Callable[[str], Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = predictor_of("canine_s")
    given = []
    fill = predictor.fill
    monkeypatch.setattr(predictor, "fill", lambda text, top: given.append(text) or fill(text, top))
    (piece,) = hidden_pieces(predictor, data, num_windows=2)[1:]
    contexts = [text.parts for text in given]
    of_it = [(a, b) for a, b in contexts if piece.before.endswith(a) and piece.after.startswith(b)]
    widths = [len(before) + len(after) for before, after in of_it]
    assert widths[0] == len(piece.before) + len(piece.after) > 56
    assert 20 < widths[-1] + len(piece.text) <= 56


def test_hidden_words_are_short(data: str, predictor_of: Callable[[str], Predictor]) -> None:
    found = hidden_pieces(predictor_of("byte2word"), data, num_windows=200)
    assert max(len(piece.text) for piece in found) == 12
