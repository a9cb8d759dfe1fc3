"""Noise: how much of it there is, what it leaves alone, and that it is the same again."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenfree.train.tasks.examples.noise import RATES, Scheme, add_noise

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
# All different, so that each can be found again.
LETTERS = "".join(chr(0x4E00 + number) for number in range(20_000))
TEXTS = st.text(
    st.sampled_from("aZß İıſΣςσǅéЖж1 _\ue003\x04日👩\U0001f600") | st.characters(exclude_categories=("Cs",))
)


def runs(text: str) -> list[int]:
    """How often each letter of a noised `LETTERS` stands in a row."""
    codepoints = np.array([ord(character) for character in text])
    return np.diff(
        np.flatnonzero(np.append(np.append(True, codepoints[1:] != codepoints[:-1]), True))
    ).tolist()


def test_drop_keeps_nine_in_ten() -> None:
    noised = add_noise(LETTERS, "drop", seed=0, example=0)
    assert len(noised) / len(LETTERS) == pytest.approx(0.9, abs=0.01)
    assert sorted(noised) == list(noised)
    assert set(runs(noised)) == {1}


def test_a_fifth_is_repeated_one_to_three_times() -> None:
    noised = add_noise(LETTERS, "repeat", seed=0, example=0)
    assert len(noised) / len(LETTERS) == pytest.approx(1.4, abs=0.02)
    assert sorted(set(noised)) == list(LETTERS)
    counts = np.bincount(runs(noised)) / len(LETTERS)
    assert counts.tolist() == pytest.approx([0, 0.8, 1 / 15, 1 / 15, 1 / 15], abs=0.01)


@given(TEXTS)
def test_upper_case_is_idempotent(text: str) -> None:
    upper = add_noise(text, "uppercase", seed=0, example=0)
    assert add_noise(upper, "uppercase", seed=1, example=1) == upper == text.upper()


@given(TEXTS, st.integers(0, 99))
@example("ßİıſΣςσǅŉ", 3)
def test_random_case_keeps_the_text_under_lower_casing(text: str, number: int) -> None:
    noised = add_noise(text, "random_case", seed=0, example=number)
    assert [one.lower() for one in noised] == [one.lower() for one in text]


def test_random_case_is_a_coin_for_each_letter() -> None:
    noised = add_noise("aB" * 5000 + "жΩ" * 5000, "random_case", seed=0, example=0)
    for letters in (noised[:10_000:2], noised[1:10_000:2], noised[10_000::2], noised[10_001::2]):
        assert sum(letter.isupper() for letter in letters) / 5000 == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_again_for_a_seed_and_an_example(scheme: Scheme) -> None:
    text = "Words of an example, upper and lower. " * 3
    noised = [add_noise(text, scheme, seed=seed, example=name) for seed in (0, 1) for name in (0, 1, "dev:1")]
    assert noised == [
        add_noise(text, scheme, seed=seed, example=name) for seed in (0, 1) for name in (0, 1, "dev:1")
    ]
    assert len(set(noised)) == (1 if scheme == "uppercase" else 6)


def test_known_values() -> None:
    """They must not change with versions of NumPy, since results are compared across machines."""
    text = "Hello World, naïve straße"
    assert [add_noise(text, scheme, seed=0, example=1) for scheme in SCHEMES] == [
        "Hello Worl, naïvestaße",
        "Heello    Woooorllddd, nnnnaïvve straße",
        "HELLO WORLD, NAÏVE STRASSE",
        "HeLLo WoRld, NAÏVe stRAßE",
    ]


@pytest.mark.parametrize("text", ["a", "ab", "日本"])
def test_some_of_a_text_is_always_left(text: str) -> None:
    noised = [add_noise(text, "drop", seed=0, example=number) for number in range(2000)]
    assert all(noised)
    assert {len(one) for one in noised} == set(range(1, len(text) + 1))
    assert len({one for one in noised if len(one) == 1}) == len(text)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_special_symbols_and_nothing_at_all_stay(scheme: Scheme) -> None:
    assert add_noise("", scheme, seed=0, example=0) == ""
    for number in range(50):
        noised = add_noise("\ue000ab\ue003\x04\ue001", scheme, seed=0, example=number)
        assert [one for one in noised if one.lower() not in "ab"] == list("\ue000\ue003\x04\ue001")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_higher_rate_strikes_more_and_what_a_lower_one_struck(scheme: Scheme) -> None:
    """Seen by what is no longer as it was: of characters that are all different, or of letters in lower case."""
    text = LETTERS if scheme in ("drop", "repeat") else "a" * 20_000

    def struck(rate: float) -> set[int]:
        noised = add_noise(text, scheme, seed=0, example=0, rate=rate)
        if scheme == "drop":
            return set(map(ord, set(text) - set(noised)))
        if scheme == "repeat":
            return {
                ord(letter)
                for letter, count in zip(dict.fromkeys(noised), runs(noised), strict=True)
                if count > 1
            }
        return {place for place, letter in enumerate(noised) if letter == "A"}

    share = 0.5 if scheme == "random_case" else 1
    few, more = struck(0.1), struck(0.4)
    assert few < more
    assert (len(few) / 20_000, len(more) / 20_000) == pytest.approx((0.1 * share, 0.4 * share), abs=0.01)
    assert add_noise(text, scheme, seed=0, example=0, rate=RATES[scheme]) == add_noise(
        text, scheme, seed=0, example=0
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_halves_of_surrogate_pairs_go_through(scheme: Scheme) -> None:
    assert "\ud800" in add_noise("ab\ud800cd" * 20, scheme, seed=0, example=0, rate=0.5)
