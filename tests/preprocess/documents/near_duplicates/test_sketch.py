"""Sketches estimate the overlap of shingles, in any script and at any length; bands agree where they should."""

import random

import numpy as np
import pytest

from tokenfree.preprocess.documents import near_duplicates as module
from tokenfree.preprocess.documents.near_duplicates import NUM_HASHES, band_hashes, similarity, sketch

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz",
    "".join(map(chr, range(0x4E00, 0x4F00))),
    "".join(map(chr, range(0x1F300, 0x1F400))),
]


def exact(first: str, second: str, length: int) -> float:
    """Jaccard similarity of the sets of shingles."""
    sets = [
        {text[start : start + length] for start in range(len(text) - length + 1)} for text in (first, second)
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("length", [60, 300, 5000])
def test_the_estimate_is_near_and_unbiased(alphabet: str, length: int) -> None:
    draw = random.Random(length)
    errors = []
    for trial in range(60):
        text = "".join(draw.choices(alphabet, k=length))
        share = (0.002, 0.01, 0.03)[trial % 3]
        other = "".join(draw.choice(alphabet) if draw.random() < share else letter for letter in text)
        found = float(similarity(sketch(text, 7), sketch(other, 7)))
        errors.append(found - exact(text, other, 7))
    assert abs(np.mean(errors)) < 0.02
    assert np.sqrt(np.mean(np.square(errors))) < 0.06
    assert float(similarity(sketch(text, 7), sketch("".join(draw.choices(alphabet, k=length)), 7))) < 0.1


def test_case_and_white_space_are_nothing() -> None:
    assert (sketch("The  RAIN\nfalls straße", 5) == sketch(" the rain falls STRASSE ", 5)).all()
    assert (sketch("the rain falls", 5) != sketch("the rain fell", 5)).any()


def test_a_text_shorter_than_a_shingle_is_one() -> None:
    assert (sketch("geese", 20) == sketch("Geese", 20)).all()
    assert float(similarity(sketch("geese", 20), sketch("ganders", 20))) < 0.1
    assert sketch("", 5).shape == (NUM_HASHES,)


def test_long_texts_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(random.Random(1).choices(ALPHABETS[0], k=5000))
    whole = sketch(text, 9)
    monkeypatch.setattr(module, "_CHUNK", 640)
    assert (sketch(text, 9) == whole).all()


def test_sketches_are_the_same_for_ever() -> None:
    """What an earlier attempt at a job wrote is compared with what this one does."""
    assert sketch("Seven geese argue about bread.", 9)[:6].tolist() == [
        40942,
        40942,
        8797,
        53245,
        8797,
        65140,
    ]
    assert band_hashes(sketch("Seven geese argue about bread.", 9)[None], 8)[0, 0] == 3855572769283226947


@pytest.mark.parametrize("rows", [4, 8, 16])
def test_bands_agree_where_all_their_numbers_do(rows: int) -> None:
    draw = np.random.default_rng(0)
    one = draw.integers(0, 1 << 16, (1, NUM_HASHES), dtype=np.uint16)
    other = one.copy()
    other[0, rows * 2] ^= 1
    same = band_hashes(one, rows) == band_hashes(other, rows)
    assert same.shape == (1, NUM_HASHES // rows)
    assert np.flatnonzero(~same[0]).tolist() == [2]
    swapped = one.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert band_hashes(swapped, rows)[0, 0] != band_hashes(one, rows)[0, 0]
