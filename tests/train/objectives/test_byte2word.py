"""Byte2Word's collator: words of bytes masked whole, and their subwords as targets."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import BYTE_CLS as CLS
from tokenfree.preprocess.text.specials import BYTE_MASK as MASK
from tokenfree.preprocess.text.specials import BYTE_SEP as SEP
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches.base import KEPT, MASKED, Arrays, Rows, predictable
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.loader import Loader, load_windows
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives import masked_subwords
from tokenfree.train.objectives.byte2word import Config
from tokenfree.workflows.recipes import library

LENGTH = 512
TEXT = "The camelCase of foo_bar doesn't change: an object is created when its class statement is run. "


@pytest.fixture(scope="module")
def vocabulary(corpus: str) -> Vocabulary:
    found = load_vocabulary(corpus)
    assert found is not None
    return found


def rows_of(texts: Sequence[str], vocabulary: Vocabulary) -> Rows:
    spans, pieces = [word_spans(text) for text in texts], [vocabulary.encode_flat([text]) for text in texts]
    return {
        "text": [np.frombuffer(text.encode(), np.uint8) for text in texts],
        "word_starts": [starts.astype(np.uint16) for starts, _ in spans],
        "word_ends": [ends.astype(np.uint16) for _, ends in spans],
        "subword_ids": [encoding.ids for encoding in pieces],
        "subword_starts": [encoding.starts for encoding in pieces],
        "subword_ends": [encoding.ends for encoding in pieces],
    }


def collate(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    ids: Sequence[int] | None = None,
    length: int = LENGTH,
    **config: Any,
) -> Arrays:
    collator = Config(**{"bytes_per_word": 4, **config}).collator(vocabulary, length, 0)
    return collator(rows_of(texts, vocabulary), np.arange(len(texts)) if ids is None else np.array(ids))


def words_of(text: str) -> list[bytes]:
    encoded = text.encode()
    return [
        encoded[start:end] for start, end in zip(*(span.tolist() for span in word_spans(text)), strict=True)
    ]


def units_of(batch: Arrays, row: int) -> list[bytes]:
    """The words of an input as bytes, without the padding."""
    ends = np.unique(batch["unit_ends"][row])
    line = batch["codepoints"][row].astype(np.uint8).tobytes()
    return [line[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def targets_of(batch: Arrays, row: int) -> list[tuple[int, int, int]]:
    """(unit, slot, subword) of each target."""
    real = batch["target_mask"][row]
    return [(*pair, gold) for pair, gold in zip(batch["target_positions"][row][real].tolist(),
                                                batch["target_ids"][row][real].tolist(), strict=True)]  # fmt: skip


def test_words_are_masked_whole_and_their_subwords_predicted(vocabulary: Vocabulary) -> None:
    """BERT's strategy over words; a masked one is the one byte MASK, so that its length does not show."""
    texts = [TEXT * 3] * 300
    batch = collate(texts, vocabulary)
    words, usable = words_of(texts[0]), predictable(vocabulary.pieces)
    pieces = [vocabulary.encode_flat([word.decode()]).ids.tolist() for word in words]
    outcomes: Counter[str] = Counter()
    for row in range(len(texts)):
        units, targets = units_of(batch, row), targets_of(batch, row)
        assert (units[0], units[-1], len(units)) == (bytes([CLS]), bytes([SEP]), len(words) + 2)
        chosen = {unit for unit, _, _ in targets}
        assert len(chosen) == round(0.15 * len(words))
        wanted = [
            (unit, slot, gold)
            for unit in chosen
            for slot, gold in enumerate(pieces[unit - 1])
            if usable[gold]
        ]
        assert sorted(targets) == sorted(wanted)
        for number, (now, was) in enumerate(zip(units[1:-1], words, strict=True), 1):
            assert now == was or number in chosen
            assert now in words or now == bytes([MASK])
            if number in chosen:
                outcomes["masked" if now == bytes([MASK]) else "kept" if now == was else "replaced"] += 1
    total = sum(outcomes.values())
    assert outcomes["masked"] / total == pytest.approx(0.8, abs=0.02)
    assert outcomes["replaced"] / total == pytest.approx(0.1 * (1 - 3 / len(words)), abs=0.02)
    assert (batch["num_characters"] == len(texts[0].strip())).all()


def test_bytes_are_framed_and_padded(vocabulary: Vocabulary) -> None:
    """Greek letters have two bytes, CJK three, emoji four; a precomposed é is C3 A9."""
    batch = collate(["é αβ  日本 😀", "a"], vocabulary, mask_fraction=1e-9, max_predictions=1)
    units = [units_of(batch, row) for row in range(2)]
    shown = [word for row in units for word in row if word != bytes([MASK])]
    whole = [
        b"\x02",
        b"\xc3\xa9",
        b"\xce\xb1\xce\xb2",
        b"\xe6\x97\xa5",
        b"\xe6\x9c\xac",
        b"\xf0\x9f\x98\x80",
        b"\x03",
    ]
    assert set(shown) <= {*whole, b"a"}
    assert len(units[0]) == len(whole)
    for row in range(2):
        size = sum(map(len, units[row]))
        assert batch["mask"][row].tolist() == [True] * size + [False] * (LENGTH - size)
        assert not batch["codepoints"][row, size:].any()
        assert (batch["unit_ends"][row, len(units[row]) - 1 :] == size).all()
    assert batch["num_characters"].tolist() == [10, 1]
    assert {name: array.shape for name, array in batch.items()} == {
        "codepoints": (2, 512),
        "mask": (2, 512),
        "unit_ends": (2, 128),
        "target_positions": (2, 1, 2),
        "target_ids": (2, 1),
        "target_mask": (2, 1),
        "target_kinds": (2, 1),
        "num_characters": (2,),
    }


def test_a_sample_is_the_same_in_any_company(vocabulary: Vocabulary) -> None:
    """Replacements come from the sample's own window, so a worker's slice of a batch is what one worker makes of it."""
    texts = [TEXT * (1 + number % 9) + f"number {number}" for number in range(40)]
    whole = collate(texts, vocabulary, mask_fraction=0.5)
    for chosen in ([7], [39, 0, 22], range(11, 40)):
        some = collate([texts[row] for row in chosen], vocabulary, list(chosen), mask_fraction=0.5)
        for name, array in whole.items():
            assert array.dtype == some[name].dtype
            np.testing.assert_array_equal(some[name], array[list(chosen)], err_msg=name)


def test_no_more_slots_than_fit(vocabulary: Vocabulary) -> None:
    text = " ".join(["Pneumonoultramicroscopic"] * 60)
    encoded = vocabulary.encode_flat(["Pneumonoultramicroscopic"]).ids
    (pieces,) = {len(encoded)}
    assert pieces > 5
    batch = collate([text] * 50, vocabulary, length=2048, max_predictions=4 * pieces + 1, max_pieces=99)
    assert (batch["target_mask"].sum(axis=1) == 4 * pieces).all()  # whole words only
    assert ((batch["codepoints"] == MASK).sum(axis=1) <= 4).all()  # the others stay as they are
    cut = collate([text] * 50, vocabulary, length=2048, max_predictions=80, max_pieces=3, mask_fraction=0.15)
    for row in range(50):
        assert {slot for _, slot, _ in targets_of(cut, row)} == {0, 1, 2}
        assert {gold for _, _, gold in targets_of(cut, row)} == set(encoded[:3].tolist())


def test_bytes_and_unknowns_are_not_predicted(vocabulary: Vocabulary) -> None:
    """Words of them alone are left as they are; elsewhere they fill their slots."""
    usable = predictable(vocabulary.pieces)
    assert not usable[vocabulary.encode_flat(["語"]).ids].any()
    batch = collate(["語 言 a語e 語"] * 40, vocabulary, mask_fraction=1.0)
    for row in range(40):
        units, targets = units_of(batch, row), targets_of(batch, row)
        assert [unit for number, unit in enumerate(units) if number not in {unit for unit, _, _ in targets}] == [
            b"\x02", "語".encode(), "言".encode(), "語".encode(), "語".encode(), b"\x03"
        ]  # fmt: skip
        assert usable[[gold for _, _, gold in targets]].all()
    nothing = collate(["語 言", ""], vocabulary)
    assert not nothing["target_mask"].any()
    assert nothing["num_characters"].tolist() == [3, 0]
    assert units_of(nothing, 1) == [bytes([CLS]), bytes([SEP])]


def test_words_across_subwords(vocabulary: Vocabulary) -> None:
    """A word's subwords are those that it has alone, wherever the subwords of the text lie."""
    texts = [TEXT, TEXT.upper()]
    batch = collate(texts, vocabulary, mask_fraction=1.0)
    words = words_of(texts[0])
    found = {unit: gold for unit, slot, gold in targets_of(batch, 0) if slot == 0}
    for unit, gold in found.items():
        assert gold == vocabulary.encode_flat([words[unit - 1].decode()]).ids[0]
    lower = collate(texts, vocabulary, mask_fraction=1.0, lower_case=True)
    golds = [Counter(gold for _, _, gold in targets_of(lower, row)) for row in range(2)]
    assert golds != [Counter(gold for _, _, gold in targets_of(batch, row)) for row in range(2)]
    assert all(vocabulary.pieces[gold].lower() == vocabulary.pieces[gold] for gold in golds[1])


def test_long_windows_are_cropped_to_a_run_of_words(vocabulary: Vocabulary) -> None:
    """By bytes or by words, whichever are full first; each run that reaches neither end of a window is full."""
    words = [f"w{number}x" for number in range(300)]
    text = " ".join(words)
    own = words_of(text)
    for length, bytes_per_word, room in ((400, 1, (398, 398)), (600, 10, (58, 598))):
        batch = collate(
            [text] * 200, vocabulary, length=length, bytes_per_word=bytes_per_word, mask_fraction=1e-9
        )
        starts = []
        for row in range(200):
            units = units_of(batch, row)[1:-1]
            targets = {unit - 1 for unit, _, _ in targets_of(batch, row)}
            place = next(place for place in range(len(units)) if place not in targets)
            start = own.index(units[place]) - place
            run = own[start : start + len(units)]
            assert len(run) == len(units) <= room[0]
            size = sum(map(len, run))
            full = len(run) == room[0] or size + len(own[min(start + len(run), 299)]) > room[1]
            assert size <= room[1]
            assert full or start + len(run) == 300
            assert batch["num_characters"][row] == size + len(run) - 1
            starts.append(start)
        assert min(starts) < 10
        assert len(set(starts)) > 60
        assert max(starts) > 180


def test_the_only_word_of_a_text_is_not_replaced(vocabulary: Vocabulary) -> None:
    batch = collate(["goose", "bread"] * 100, vocabulary, mask_fraction=0.9)
    assert set(batch["target_kinds"][batch["target_mask"]].tolist()) == {MASKED, KEPT}
    assert b"goose" in {unit for row in range(200) for unit in units_of(batch, row)}


def test_replacements_never_make_an_input_too_long(vocabulary: Vocabulary) -> None:
    text = " ".join("a" if number % 2 else "b" * 100 for number in range(20))
    batch = collate([text] * 300, vocabulary, length=404, bytes_per_word=1, mask_fraction=0.4)
    sizes = batch["mask"].sum(axis=1)
    assert sizes.max() <= 404
    assert (sizes == batch["unit_ends"][:, -1]).all()
    swapped = sum(now == b"b" * 100 for row in range(300) for now in units_of(batch, row)[2::2])
    assert swapped > 0


@pytest.mark.parametrize("length", [128, 2048])
def test_pseudo_words_are_as_many_as_berts_positions(
    corpus: str, vocabulary: Vocabulary, length: int
) -> None:
    texts = [window["text"] for window in load_windows(corpus, stop=60)] + ["語言 naïve 😀a", "x" * 40]
    rows = rows_of(texts, vocabulary)
    bert = masked_subwords.Config().collator(vocabulary, length, 0)(rows, np.arange(len(texts)))
    ours = collate(texts, vocabulary, words="subwords", length=LENGTH, mask_fraction=1e-9, max_predictions=1)
    for row, text in enumerate(texts):
        units = units_of(ours, row)
        assert len(units) == bert["mask"][row].sum()
        target = {unit: vocabulary.pieces[gold] for unit, _, gold in targets_of(ours, row)}
        for number, (unit, gold) in enumerate(
            zip(units[1:-1], rows["subword_ids"][row].tolist(), strict=True), 1
        ):
            if number in target:
                assert target[number] == vocabulary.pieces[gold]
                continue
            piece = vocabulary.pieces[gold]
            spelled = bytes([int(piece[1:-1], 16)]) if piece.startswith("<0x") else piece.strip("▁").encode()
            assert unit == spelled, text


def test_pseudo_words_are_predicted_as_they_are(corpus: str, vocabulary: Vocabulary) -> None:
    texts = [window["text"] for window in load_windows(corpus, stop=100)]
    rows = rows_of(texts, vocabulary)
    batch = collate(texts, vocabulary, words="subwords")
    for row, ids in enumerate(rows["subword_ids"]):
        targets = targets_of(batch, row)
        assert targets
        assert all(slot == 0 and ids[unit - 1] == gold for unit, slot, gold in targets)


def test_frequencies_are_those_of_targets(corpus: str, vocabulary: Vocabulary) -> None:
    texts = [window["text"] for window in load_windows(corpus, stop=200)]
    rows = rows_of(texts, vocabulary)
    for words in ("rules", "subwords"):
        symbols = Config(words=words).symbols(vocabulary)
        assert symbols is not None
        usable = Counter(gold for gold in symbols.read(rows)[0].tolist() if symbols.usable[gold])
        batch = collate(
            texts, vocabulary, words=words, mask_fraction=1.0, max_predictions=500, max_pieces=500
        )
        assert Counter(batch["target_ids"][batch["target_mask"]].tolist()) == usable
    assert Config().symbols(None) is None


def test_the_loader_divides_batches(corpus: str, vocabulary: Vocabulary) -> None:
    def loader(rank: int, world_size: int) -> Loader:
        collator = Config(bytes_per_word=4).collator(vocabulary, LENGTH, 3)
        options: Any = {"global_batch": 12, "seed": 3, "smoothing": 0.7, "streams": 2}
        return Loader(corpus, collator=collator, rank=rank, world_size=world_size, **options)

    alone, workers = loader(0, 1), [loader(rank, 5) for rank in range(5)]
    for step in (0, 31):
        parts = [worker.batch(step) for worker in workers]
        for name, array in alone.batch(step).items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)


def test_only_words_by_rules_are_those_of_the_text() -> None:
    assert Config().gives_words
    assert not Config(words="subwords").gives_words


def test_parts_that_cannot_serve_are_named(vocabulary: Vocabulary) -> None:
    config, serving = Config(), build(PretrainRecipe, library.read_based("byte2word-base"), source="test")
    mistakes = config.check(ModelConfig(), vocabulary)
    assert [mistake.split(";")[0] for mistake in mistakes] == [
        "model.embedder.name: codepoint_hash reads characters, but objective.name: byte2word gives it bytes",
        "model.downsampler.name: strided_conv makes units of its own, but objective.name: byte2word gives it words",
        "model.upsampler.name: repeat_concat makes one vector of a word, but objective.name: byte2word predicts "
        "several subwords of it",
    ]
    assert config.check(serving.model, vocabulary) == []
    (mistake,) = dataclasses.replace(config, bytes_per_word=6).check(serving.model, vocabulary)
    assert (
        mistake == "objective.bytes_per_word: 6 is not model.downsampler.bytes_per_word, 8; make them equal"
    )
    (mistake,) = dataclasses.replace(config, max_pieces=17).check(serving.model, vocabulary)
    assert mistake.startswith("objective.max_pieces: 17 is more than model.upsampler.max_pieces, 16")
    (mistake,) = build(PretrainRecipe, {}, source="test").objective.check(serving.model, vocabulary)
    assert mistake.startswith(
        "model.embedder.name: word_bytes reads bytes, but objective.name: canine_s gives it"
    )
    with pytest.raises(UserError, match=r"byte2word .* no vocabulary"):
        config.collator(None, LENGTH, 0)
    with pytest.raises(UserError, match=r"train\.length: 129 bytes .* at least 130"):
        config.collator(vocabulary, 129, 0)
    with pytest.raises(UserError, match=r"train\.length: 200 bytes .* at least 300"):
        dataclasses.replace(config, bytes_per_word=100).collator(vocabulary, 200, 0)
