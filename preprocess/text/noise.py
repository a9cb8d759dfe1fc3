"""Noise for tests of robustness: dropped, repeated and upper-cased characters, random case (Lee, Guo, Qiu, 2211.12677).

Every draw is a function of the seed, the scheme and the example alone (Philox is a counter-based generator). Codepoints
that stand for the models' special symbols are left as they are and where they are.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Literal, get_args

import numpy as np

from tokenfree.preprocess.text.characters import byte_offsets, codepoints_of
from tokenfree.preprocess.text.words import word_spans

Scheme = Literal["drop", "repeat", "uppercase", "random_case"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_DROPPED = 0.1  # of the characters
_REPEATED = 0.2
_MOST_COPIES = 3  # in addition to the character itself, 1 to 3 alike
_LAST_CASED = 0x1FFFF  # no character beyond has a case


def add_noise(text: str, scheme: Scheme, *, seed: int, example: int | str) -> str:
    """`text` with the noise of a scheme; the same for the same arguments.

    drop: each character is deleted with probability 0.1, but never all. repeat: each is chosen with probability 0.2 and
    followed by 1 to 3 copies of itself. uppercase: all are upper-cased. random_case: each is upper- or lower-cased with
    probability 1/2.

    Raises:
        ValueError: there is no such scheme.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"there is no noise {scheme!r} (there are {', '.join(SCHEMES)})")
    if scheme == "uppercase":
        return text.upper()
    codepoints = codepoints_of(text)
    if scheme == "random_case":
        changed = _random_case(codepoints, seed, example)
    elif scheme == "drop":
        drawn = _uniform(seed, scheme, example, len(codepoints))
        kept = (drawn >= _DROPPED) | _is_special(codepoints)
        if len(kept) and not kept.any():
            kept[drawn.argmax()] = True
        changed = codepoints[kept]
    else:
        drawn = _uniform(seed, scheme, example, 2 * len(codepoints))
        chosen = (drawn[::2] < _REPEATED) & ~_is_special(codepoints)
        copies = 1 + (drawn[1::2] * _MOST_COPIES).astype(np.int64)
        changed = np.repeat(codepoints, 1 + chosen * copies)
    return changed.tobytes().decode("utf-32-le")


def random_case_in_words(text: str, *, seed: int, example: int | str) -> tuple[str, np.ndarray, np.ndarray]:
    """`add_noise(text, "random_case", ...)`, with the words of `text` as it was before.

    Words are found first, so that "rAnDoM" stays one. Starts and ends (uint32 [words]) are bytes of the new text.
    """
    codepoints = codepoints_of(text)
    changed = _random_case(codepoints, seed, example)
    before, after = byte_offsets(codepoints), byte_offsets(changed)  # other letters may have other lengths in UTF-8
    starts, ends = (after[np.searchsorted(before, span)].astype(np.uint32) for span in word_spans(text))
    return changed.tobytes().decode("utf-32-le"), starts, ends


def _random_case(codepoints: np.ndarray, seed: int, example: int | str) -> np.ndarray:
    upper, lower = _cases()
    drawn = _uniform(seed, "random_case", example, len(codepoints))
    index = np.minimum(codepoints, _LAST_CASED)
    shift = np.where(drawn < 0.5, upper[index], lower[index])
    return (codepoints + shift).astype("<u4")


@functools.cache
def _cases() -> tuple[np.ndarray, np.ndarray]:
    """How far each codepoint is from its upper and its lower case, int64 [`_LAST_CASED` + 1] each.

    0 where the other case has another number of characters or does not come back when lower-cased, as "ß" and "ı": so
    noise of case never changes which characters a text has.
    """
    characters = [chr(codepoint) for codepoint in range(_LAST_CASED + 1)]
    shifts = []
    for change in (str.upper, str.lower):
        others = map(change, characters)
        shifts.append(
            [
                ord(other) - ord(one) if len(other) == 1 and other.lower() == one.lower() else 0
                for one, other in zip(characters, others, strict=True)
            ]
        )
    upper, lower = (np.array(shift, dtype=np.int64) for shift in shifts)
    return upper, lower


def _is_special(codepoints: np.ndarray) -> np.ndarray:
    """Codepoints of special symbols: the bytes 0 to 4 and the first of the Private Use Area (see normalize.py)."""
    return (codepoints <= 4) | ((codepoints >= 0xE000) & (codepoints < 0xE010))


def _uniform(seed: int, scheme: str, example: int | str, count: int) -> np.ndarray:
    """float64 [count] in [0, 1)."""
    name = "\x00".join(map(str, (seed, scheme, example)))
    key = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), dtype="<u8")
    return (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * 2.0**-53
