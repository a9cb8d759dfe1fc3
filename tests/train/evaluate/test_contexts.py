"""Examples without their context: what hides the targets stays, and nothing else of the text does."""

from typing import Any, get_args

import numpy as np
import pytest

from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.text import specials
from tokenfree.preprocess.text.specials import CLS, MASK, PAD, SEP
from tokenfree.train.batches.base import Arrays
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import validation_batches
from tokenfree.train.evaluate import Change, without_context
from tokenfree.train.objectives import byte2word, canine_c, canine_s, masked_characters, masked_subwords

CHARACTERS: dict[str, Any] = {
    "canine_s": canine_s.Config(),
    "canine_s with pairs": canine_s.Config(next_sentence=True),
    "canine_c": canine_c.Config(),
    "masked_characters": masked_characters.Config(),
}
FRAME = (CLS, SEP, PAD)


def batch_of(corpus: str, objective: Any, length: int = 64) -> tuple[Arrays, int]:
    """Sixteen windows as the objective masks them, and the number of subwords."""
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    collator = objective.collator(vocabulary, length, 0)
    (batch,) = validation_batches(
        ShardReader(corpus, "validation"), collator=collator, num_windows=16, batch=16
    )
    return batch, vocabulary.size


def is_white(codepoint: int) -> bool:
    return codepoint not in (*FRAME, MASK) and chr(codepoint).isspace()


@pytest.mark.parametrize("name", CHARACTERS)
def test_blank_characters(corpus: str, name: str) -> None:
    batch, size = batch_of(corpus, CHARACTERS[name])
    blank = without_context(batch, "characters", size, "blank")
    kept = batch["codepoints"]
    expected = [[c if c in FRAME or is_white(c) else MASK for c in row] for row in kept.tolist()]
    assert blank["codepoints"].tolist() == expected
    assert (blank["codepoints"] != kept).mean() > 0.3
    for column in set(batch) - {"codepoints"}:
        np.testing.assert_array_equal(blank[column], batch[column])


@pytest.mark.parametrize("name", CHARACTERS)
def test_other_characters(corpus: str, name: str) -> None:
    batch, size = batch_of(corpus, CHARACTERS[name])
    other = without_context(batch, "characters", size, "other")["codepoints"].tolist()
    own = batch["codepoints"].tolist()
    texts = [[c for c in row if c not in FRAME] for row in own]
    for row, (before, after) in enumerate(zip(own, other, strict=True)):
        partner, place = texts[(row + 8) % 16], 0
        for at, (was, now) in enumerate(zip(before, after, strict=True)):
            if was in FRAME:
                assert now == was
                continue
            taken = partner[place % len(partner)]
            place += 1
            if was == MASK:
                assert now == MASK
            # As many are hidden, and words begin where they did.
            elif MASK in (before[at - 1], before[at + 1]):
                assert is_white(now) == is_white(was)
                assert now != MASK
                assert now == was if is_white(was) else now in partner
            else:
                assert now == taken


def test_subwords(corpus: str) -> None:
    batch, size = batch_of(corpus, masked_subwords.Config())
    own = batch["codepoints"]
    text = batch["mask"] & ~np.isin(own, (size, size + 1))
    blank = without_context(batch, "subwords", size, "blank")["codepoints"]
    np.testing.assert_array_equal(blank, np.where(text, size + 2, own))
    other = without_context(batch, "subwords", size, "other")["codepoints"]
    hidden = own == size + 2
    np.testing.assert_array_equal(np.where(text & ~hidden, -1, other), np.where(text & ~hidden, -1, own))
    for row in range(16):
        partner = own[(row + 8) % 16][text[(row + 8) % 16]].tolist()
        taken = [partner[place % len(partner)] for place in range(int(text[row].sum()))]
        # Beside what is hidden nothing that hides is put in.
        for now, given, is_hidden in zip(other[row][text[row]], taken, hidden[row][text[row]], strict=True):
            assert is_hidden or now == given or (given == size + 2 and now in partner)


def words_of(arrays: Arrays, row: int) -> list[bytes]:
    """The words of an example between CLS and SEP."""
    ends = arrays["unit_ends"][row].tolist()
    line = bytes(arrays["codepoints"][row].tolist())
    found = [line[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]
    assert (found[0], found[-1]) == (bytes([specials.BYTE_CLS]), bytes([specials.BYTE_SEP]))
    assert arrays["mask"][row].sum() == len(b"".join(found))
    return found[1:-1]


def test_words_of_bytes(corpus: str) -> None:
    batch, size = batch_of(corpus, byte2word.Config(bytes_per_word=2), 144)
    hidden = bytes([specials.BYTE_MASK])
    blank, other = (without_context(batch, "bytes", size, change) for change in get_args(Change))
    assert set(blank) == set(batch)
    for row in range(16):
        own, partner = words_of(batch, row), words_of(batch, (row + 8) % 16)
        assert words_of(blank, row) == [hidden] * len(own)
        expected = [
            hidden if word == hidden else partner[place % len(partner)] for place, word in enumerate(own)
        ]
        assert words_of(other, row) == expected
        assert expected != own


def test_words_that_do_not_fit_are_hidden() -> None:
    """Two words of one byte get the places of others that need more bytes than there are."""
    long, short = [b"a" * 60, b"b" * 60], [b"c", b"d"]
    codepoints, mask = np.zeros((2, 130), dtype=np.int64), np.zeros((2, 130), dtype=bool)
    unit_ends = np.zeros((2, 6), dtype=np.int64)
    many = [*short, *short]
    for row, words in enumerate((long, many)):
        line = bytes([specials.BYTE_CLS]) + b"".join(words) + bytes([specials.BYTE_SEP])
        codepoints[row, : len(line)], mask[row, : len(line)] = list(line), True
        sizes = [1, *(len(word) for word in words), 1]
        unit_ends[row] = np.append(np.cumsum(sizes), [len(line)] * (6 - len(sizes)))
    other = without_context(
        {"codepoints": codepoints, "mask": mask, "unit_ends": unit_ends}, "bytes", 0, "other"
    )
    assert words_of(other, 0) == short
    assert words_of(other, 1) == [*long, bytes([specials.BYTE_MASK]), bytes([specials.BYTE_MASK])]


def test_an_example_alone_has_no_other(corpus: str) -> None:
    batch, size = batch_of(corpus, CHARACTERS["canine_s"])
    alone = {name: values[:1] for name, values in batch.items()}
    blank, other = (
        without_context(alone, "characters", size, change)["codepoints"] for change in get_args(Change)
    )
    np.testing.assert_array_equal(blank, other)
