"""What takes the place of a selected item tells nothing of those that are masked in the same window."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.text.specials import BYTE_MASK as MASKED_WORD
from tokenfree.preprocess.text.specials import MASK, of_subwords
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches.base import Arrays, draw_unselected
from tokenfree.train.objectives import byte2word, canine_s, masked_characters, masked_subwords

ROWS, ITEMS = 2000, 40
CONTROL = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
PIECES = [*CONTROL, *(f"▁{a}{b}" for a in "bcdfghjklm" for b in "aeiou")]  # 50 of two characters
FIRST = len(CONTROL)


class FakeVocabulary:
    size = len(PIECES)

    @property
    def pieces(self) -> list[str]:
        return PIECES


def some(rng: np.random.Generator, of: int) -> np.ndarray:
    return rng.permutation(of)[:ITEMS]


def shown_masked(now: list[Any], gold: list[Any], masked: Any) -> tuple[int, int, int]:
    """How many items are replaced; how many of those show an item that is masked; how many are masked."""
    hidden = {was for is_now, was in zip(now, gold, strict=True) if is_now == masked}
    replaced = [is_now for is_now, was in zip(now, gold, strict=True) if is_now not in (was, masked)]
    return len(replaced), sum(each in hidden for each in replaced), len(hidden)


def characters(rng: np.random.Generator) -> tuple[Arrays, list[list[int]]]:
    golds = [[0x4E00 + int(number) for number in some(rng, 100)] for _ in range(ROWS)]
    collator = masked_characters.Config(mask_fraction=0.4).collator(None, 64, 0)
    rows = {
        "codepoints": [np.array(gold, np.int32) for gold in golds],
        "whitespace": [np.zeros(ITEMS, np.bool_)] * ROWS,
    }
    return collator(rows, np.arange(ROWS)), golds


def test_characters_come_from_those_not_selected() -> None:
    batch, golds = characters(np.random.default_rng(0))
    counts = [
        shown_masked(batch["codepoints"][row, 1 : ITEMS + 1].tolist(), golds[row], MASK)
        for row in range(ROWS)
    ]
    replaced, shown, masked = np.sum(counts, axis=0)
    assert replaced > 0.09 * 0.4 * ROWS * ITEMS
    assert masked > 0.3 * ROWS * ITEMS
    assert shown == 0  # each character stands once


def test_words_come_from_those_not_selected(corpus: str) -> None:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    rng = np.random.default_rng(0)
    names = [
        a + b for a in "bcdfghjklm" for b in ("at", "en", "ing", "or", "us", "ate", "ive", "ox", "um", "yl")
    ]
    golds = [[names[number].encode() for number in some(rng, 100)] for _ in range(ROWS)]
    texts = [b" ".join(gold).decode() for gold in golds]
    spans = [word_spans(text) for text in texts]
    rows = {
        "text": [np.frombuffer(text.encode(), np.uint8) for text in texts],
        "word_starts": [starts.astype(np.uint16) for starts, _ in spans],
        "word_ends": [ends.astype(np.uint16) for _, ends in spans],
    }
    collator = byte2word.Config(bytes_per_word=4, mask_fraction=0.4).collator(vocabulary, 512, 0)
    batch = collator(rows, np.arange(ROWS))
    counts = []
    for row, gold in enumerate(golds):
        line, ends = (
            batch["codepoints"][row].astype(np.uint8).tobytes(),
            batch["unit_ends"][row, : ITEMS + 1].tolist(),
        )
        now = [line[start:end] for start, end in pairwise(ends)]
        counts.append(shown_masked(now, gold, bytes([MASKED_WORD])))
    replaced, shown, masked = np.sum(counts, axis=0)
    assert replaced > 0.09 * 0.4 * ROWS * ITEMS
    assert masked > 0.3 * ROWS * ITEMS
    assert shown == 0  # each word stands once


@pytest.mark.parametrize("name", ["masked_subwords", "canine_s"])
def test_subwords_come_from_the_whole_vocabulary(name: str) -> None:
    """Among 50 pieces of a kind, a replacement is one of the m masked ones m times in 49 (itself would be kept)."""
    rng = np.random.default_rng(0)
    golds = [[FIRST + int(number) for number in some(rng, 50)] for _ in range(ROWS)]
    texts = [" ".join(PIECES[piece][1:] for piece in gold) for gold in golds]
    starts = 3 * np.arange(ITEMS)
    rows = {
        "codepoints": [np.array([ord(c) for c in text], np.int32) for text in texts],
        "subword_ids": [np.array(gold, np.int32) for gold in golds],
        "subword_starts": [starts.astype(np.uint16)] * ROWS,
        "subword_ends": [(starts + 2).astype(np.uint16)] * ROWS,
    }
    objective: Any = masked_subwords if name == "masked_subwords" else canine_s
    batch = objective.Config(mask_fraction=0.4).collator(FakeVocabulary(), 256, 0)(rows, np.arange(ROWS))
    found = []
    for row, gold in enumerate(golds):
        line = batch["codepoints"][row]
        if name == "canine_s":
            now: list[Any] = ["".join(map(chr, line[1 + at : 3 + at])) for at in starts]
            found.append(shown_masked(now, [PIECES[piece][1:] for piece in gold], chr(MASK) * 2))
        else:
            found.append(shown_masked(line[1 : ITEMS + 1].tolist(), gold, of_subwords(len(PIECES)).mask))
    replaced, shown, masked = np.array(found).T
    assert replaced.sum() > 0.09 * 0.4 * ROWS * ITEMS
    assert shown.sum() / replaced.sum() == pytest.approx(
        (masked * replaced).sum() / replaced.sum() / 49, abs=0.02
    )


def shares(shown: list[Any], gold: Any, masked: Any, other: Any) -> list[float]:
    """How often an item is masked, replaced by the only other one of its window, and kept."""
    assert set(shown) <= {gold, masked, other}
    return [shown.count(each) / len(shown) for each in (masked, other, gold)]


@pytest.mark.parametrize("place", [0, 1])
def test_the_first_of_two_may_replace_the_second(corpus: str, place: int) -> None:
    """80% masked, 10% replaced and 10% kept, also in windows of two items; each is a batch by itself."""
    rows: dict[str, list[np.ndarray]] = {
        "codepoints": [np.array([0x4E00, 0x4E01], np.int32)],
        "whitespace": [np.zeros(2, np.bool_)],
        "text": [np.frombuffer(b"at en", np.uint8)],
        "word_starts": [np.array([0, 3], np.uint16)],
        "word_ends": [np.array([2, 5], np.uint16)],
    }
    collator = masked_characters.Config().collator(None, 16, 0)
    batches = [collator(rows, np.array([number])) for number in range(1500)]
    shown = [
        int(batch["codepoints"][0, place + 1])
        for batch in batches
        if batch["target_positions"][0, 0] == place + 1
    ]
    assert shares(shown, 0x4E00 + place, MASK, 0x4E01 - place) == pytest.approx([0.8, 0.1, 0.1], abs=0.04)

    of_words = byte2word.Config(bytes_per_word=4).collator(load_vocabulary(corpus), 256, 0)
    words = []
    for number in range(1500):
        batch = of_words(rows, np.array([number]))
        if batch["target_positions"][0, 0, 0] == place + 1:
            start, end = batch["unit_ends"][0, place : place + 2]
            words.append(batch["codepoints"][0, start:end].astype(np.uint8).tobytes())
    pair = [b"at", b"en"]
    found = shares(words, pair[place], bytes([MASKED_WORD]), pair[1 - place])
    assert found == pytest.approx([0.8, 0.1, 0.1], abs=0.04)


def test_unselected_items_are_drawn_evenly() -> None:
    counts, selected = np.array([5, 2, 0, 3]), np.array([1, 3, 5, 6, 8])
    rows = np.repeat([0, 1, 3], 300)
    choice = np.tile(np.arange(300) / 300, 3)
    drawn = draw_unselected(counts, selected, rows, choice)
    assert np.bincount(drawn[rows == 0]).tolist() == [100, 0, 100, 0, 100]
    assert (drawn[rows == 1] == -1).all()
    assert np.bincount(drawn[rows == 3], minlength=10).tolist() == [0] * 7 + [150, 0, 150]
    assert draw_unselected(counts, np.arange(10), rows, choice).max() == -1
