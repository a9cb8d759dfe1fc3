"""What a run guesses for hidden pieces: heads that know one answer say it, in the right length and place."""

import io
import json
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.train.conftest import MakeRecipe, teach
from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference import predictor as predictor_module
from tokenfree.train.inference.predictor import LONGEST, best, load_predictor, read_masked_text
from tokenfree.train.inference.text_encoder import load_encoder
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows.cli import main

OBJECTIVES: dict[str, Mapping[str, Any]] = {
    "canine_s": {"name": "canine_s"},
    "canine_c": {"name": "canine_c", "heads": 2, "buckets": 300},
    "masked_characters": {"name": "masked_characters", "buckets": 300},
    "masked_subwords": {"name": "masked_subwords"},
    "byte2word": {"name": "byte2word"},
}
TEXT = "the [MASK] of a"


@pytest.fixture(scope="module")
def runs(
    corpus: str, make_recipe_for: MakeRecipe, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """The run of an objective, after one step."""
    made: dict[str, str] = {}

    def run(name: str) -> str:
        if name not in made:
            recipe = make_recipe_for(OBJECTIVES[name], steps=1, validate_every_steps=1)
            made[name] = pretrain(recipe, corpus, str(tmp_path_factory.mktemp(name) / "run")).run
        return made[name]

    return run


def pieces_of(corpus: str) -> list[str]:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    return vocabulary.pieces


def test_a_subword_by_its_characters(runs: Callable[[str], str], corpus: str) -> None:
    predictor, pieces = load_predictor(runs("canine_s")), pieces_of(corpus)
    teach(predictor, pieces.index("ing"), pieces.index("▁the"), pieces.index("▁of"))
    ((the, of, *_),) = predictor("a [MASK] b")
    assert (the.text, of.text) == ("the", "of")  # "ing" begins no word
    # It is certain with three characters, and impossible with two, where "of" is the only likely one that
    # fits.
    assert the.probability == pytest.approx(np.exp(-10) / LONGEST, rel=1e-3)
    assert of.probability == pytest.approx(np.exp(-20) / LONGEST, rel=1e-3)
    ((ing, *_),) = predictor("play[MASK]", top=1)
    assert ing.text == "ing"
    assert ing.probability == pytest.approx(1 / LONGEST, rel=1e-3)
    ((only,),) = predictor("play[MASK:3]", top=1)
    assert (only.text, only.probability) == ("ing", pytest.approx(1.0, abs=1e-3))
    found = predictor("[MASK:2] and [MASK:4]", top=50)
    assert [{len(guess.text) for guess in guesses} for guesses in found] == [{2}, {4}]


@pytest.mark.parametrize("buckets", [12, 24])
def test_weights_that_do_not_fit_name_the_config(
    runs: Callable[[str], str], corpus: str, tmp_path: Path, buckets: int
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs("canine_s"), run)
    mapping = yaml.safe_load((run / "config.yaml").read_text())
    mapping["recipe"]["model"]["embedder"]["buckets"] = buckets
    (run / "config.yaml").write_text(yaml.safe_dump(mapping))
    (run / "hashes.json").unlink()
    words = (
        rf"^{run}/config\.yaml: its model does not fit the weights of step_00000001: 1 of \d+ tensors differ"
    )
    for read in (load_predictor, load_encoder, partial(evaluate, data=corpus)):
        with pytest.raises(UserError, match=words):
            read(str(run))


def test_a_subword_by_its_id(runs: Callable[[str], str], corpus: str) -> None:
    predictor, pieces = load_predictor(runs("masked_subwords")), pieces_of(corpus)
    teach(predictor, pieces.index("ing"), pieces.index("▁of"))
    ((first, second),) = predictor(TEXT, top=2)
    assert (first.text, second.text) == ("ing", "▁of")
    assert first.probability == pytest.approx(1.0, abs=1e-4)


def test_a_word_of_several_subwords(runs: Callable[[str], str], corpus: str) -> None:
    predictor, pieces = load_predictor(runs("byte2word")), pieces_of(corpus)
    teach(predictor, pieces.index("▁the"), pieces.index("ing"))
    ((first, second, third, *_),) = predictor(TEXT)
    assert [first.text, second.text, third.text] == ["the", "theing", "theinging"]
    assert first.probability == pytest.approx(1 / 3, rel=1e-3)
    assert second.probability == pytest.approx(np.exp(-10) / 3, rel=1e-3)


@pytest.mark.parametrize("name", ["canine_c", "masked_characters"])
def test_characters(runs: Callable[[str], str], name: str) -> None:
    predictor = load_predictor(runs(name))
    teach(predictor, 0x20, 0x65, 0x74)  # white space is not a character of a word
    ((first, *_),) = predictor("the [MASK:3] of")
    assert first.text == "eee"
    assert first.probability == pytest.approx(np.exp(-30), rel=1e-2)
    ((shortest, *_),) = predictor("the [MASK] of")
    assert shortest.text == "e"


@pytest.mark.parametrize("name", ["canine_c", "masked_characters"])
def test_no_text_of_unprintable_characters(runs: Callable[[str], str], name: str) -> None:
    predictor = load_predictor(runs(name))
    teach(predictor, 0)
    predictor._model.head.get_parameter("output.bias").data[:32] = 40
    assert predictor("the [MASK:3] of a [MASK:1]") == [[], []]


def test_a_class_is_told_by_its_most_frequent_character(
    corpus: str, make_recipe_for: MakeRecipe, tmp_path: Path
) -> None:
    """Of 64 classes "e" shares one with "%", and is the one that the data have more of."""
    recipe = make_recipe_for({"name": "masked_characters", "buckets": 64}, steps=1, validate_every_steps=1)
    predictor = load_predictor(pretrain(recipe, corpus, str(tmp_path / "run")).run)
    teach(predictor, ord("e") % 64, 0)
    ((first, *_),) = predictor("the [MASK:2] of")
    assert first.text == "ee"


@pytest.mark.parametrize("name", ["canine_c", "masked_characters"])
def test_a_text_is_read_once_for_all_beginnings(
    name: str, runs: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load_predictor(runs(name))
    encoder: Any = predictor._model.encoder
    read, forward = [], encoder.forward
    monkeypatch.setattr(
        encoder, "forward", lambda ids, *more, **named: read.append(len(ids)) or forward(ids, *more, **named)
    )
    ((*found,),) = predictor("the [MASK:3] of")
    assert read == [1, 1, 1]
    monkeypatch.setattr(predictor_module, "_OneText", lambda each: each)
    ((*expected,),) = predictor("the [MASK:3] of")
    assert max(read) > 1
    assert [guess.text for guess in found] == [guess.text for guess in expected]
    assert [guess.probability for guess in found] == pytest.approx([guess.probability for guess in expected])


def test_characters_know_those_before(runs: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """CANINE-C is given the beginning of the word, row by row as its guesses have it."""
    predictor = load_predictor(runs("canine_c"))
    given = []

    def logits(encoder: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        given.append(batch["target_codepoints"].clone())
        values = torch.zeros(*batch["target_mask"].shape, 300)
        values[..., ord("a")], values[..., ord("b")] = 2.0, 1.0
        # After an "a" a "c" is certain.
        after_a = batch["target_codepoints"][:, :-1] == ord("a")
        values[:, 1:, ord("c")] = after_a * 50.0
        return values.flatten(0, 1)

    monkeypatch.setattr(predictor._model.head, "target_logits", logits)
    ((first, second, *_),) = predictor("[MASK:2]")
    assert first.text == "ac"
    assert second.text == "ba"
    assert given[0].tolist() == [[0, 0]]
    assert given[1][:2].tolist() == [[ord("a"), 0], [ord("b"), 0]]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_guesses_are_probabilities_and_repeat(runs: Callable[[str], str], corpus: str, name: str) -> None:
    predictor = load_predictor(runs(name), corpus)
    found = predictor(TEXT, top=1000)
    assert found == load_predictor(runs(name))(TEXT, top=1000)
    (guesses,) = found
    values = [guess.probability for guess in guesses]
    assert values == sorted(values, reverse=True)
    assert 0 < sum(values) <= 1 + 1e-5
    assert len({guess.text for guess in guesses}) == len(guesses) > 5


def test_equal_texts_add_up() -> None:
    assert best([("a", np.log(0.2)), ("b", np.log(0.3)), ("a", np.log(0.25))], top=1) == [
        ("a", pytest.approx(0.45))
    ]


def test_marks() -> None:
    text = read_masked_text("[MASK] a[MASK:3][MASK]\n[MASK]")
    assert text.parts == ("", " a", "", "\n", "")
    assert text.sizes == (None, 3, None, None)
    assert [text.begins_word(number) for number in range(4)] == [True, False, False, True]
    for wrong, what in (
        ("nothing", r"has no \[MASK\]"),
        ("[MASK:0]", "hides nothing"),
        ("[MASK:00]", "hides nothing"),
        ("[MASK:999999999]", "hides more characters than any model reads"),
        (f"[MASK:{'9' * 5000}]", "hides more characters than any model reads"),
    ):
        with pytest.raises(UserError, match=what):
            read_masked_text(wrong)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_texts_that_are_too_long(runs: Callable[[str], str], name: str) -> None:
    predictor = load_predictor(runs(name))
    for text in ("ab " * 200 + "[MASK]", "ab " * 200_000 + "[MASK]", "a" * 600_000 + "[MASK:5]"):
        tracemalloc.start()
        with pytest.raises(UserError, match=r"the text has \d+ .*this model reads \d+.*Shorten it"):
            predictor(text)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000


def test_data_with_another_vocabulary(runs: Callable[[str], str], long_corpus: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not the vocabulary .* --data DIR"):
        load_predictor(runs("canine_s"), long_corpus)
    with pytest.raises(UserError, match="holds no run"):
        load_predictor(tmp_path)


def test_the_command(
    runs: Callable[[str], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs("canine_s")
    monkeypatch.setattr(sys, "stdin", io.StringIO("one [MASK]\n\ntwo [MASK] and [MASK]\n"))
    assert main(["predict", run, "-", "three [MASK]", "--top", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["one [MASK]", "two [MASK] and [MASK]", "three [MASK]"]
    assert [[len(guesses) for guesses in line["masks"]] for line in lines] == [[2], [2, 2], [2]]
    assert main(["predict", run, "one [MASK]"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "one [MASK]"
    assert shown[1].startswith("  1  ")
    assert shown[1].count("%") == 5
    assert main(["predict", run, "nothing"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["predict", run, "[MASK]", "--top", "0"])


def test_a_text_of_subwords_is_read_as_one(
    runs: Callable[[str], str], corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands behind a mark begins no word of its own; each mark is one MASK, and the asked one is the target."""
    predictor, pieces = load_predictor(runs("masked_subwords")), pieces_of(corpus)
    given: list[Mapping[str, torch.Tensor]] = []

    def logits(encoder: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        given.append(batch)
        return torch.zeros(1, len(pieces))

    monkeypatch.setattr(predictor._model.head, "target_logits", logits)
    predictor("the [MASK]ing of[MASK][MASK] the")
    special = ["CLS", "SEP", "MASK"]
    names = [([*pieces, *special])[int(i)] for i in given[0]["codepoints"][0][given[0]["mask"][0]]]
    assert names == ["CLS", "▁the", "MASK", "ing", "▁of", "MASK", "MASK", "▁the", "SEP"]
    assert [int(batch["target_positions"][0, 0]) for batch in given] == [2, 5, 6]
