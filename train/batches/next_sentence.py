"""Examples of two parts, [CLS] A [SEP] B [SEP]: in half of them B follows A in its document, else B is from another.

Two windows become one with a separator inside, which a collator of single windows then masks and frames as usual.
Which windows come together is decided by train/data/partners.py, the loss by train/objectives/heads.py.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from train.data import random
from train.objectives.base import Arrays, Collator, Rows
from train.objectives.framing import SEP

_NEEDED = ("document", "sentence_starts", "whitespace")
_SPANS = ("subword_ids", "subword_starts", "subword_ends")

Window = dict[str, np.ndarray]  # the columns of one row


class PairCollator:
    """Pairs of windows to the arrays of `single`, with two more.

    segments int64 [b, length]: 0 up to and with the first SEP, 1 up to and with the second, 0 for padding.
    from_elsewhere int64 [b]: 0 where B is what follows A, 1 where it is from another document.

    A window is cut in two at one of its sentence starts; where it is one sentence, at one of its words; where it is one
    word, anywhere. A is what comes before the cut of its window, without white space at the end, and B what comes after
    the cut of its own. Where both are too long together, A loses its beginning and B its end.

    Args:
        single: the collator of single windows, which takes at most `room` units.
        units: what the positions of an input are.
        separator: the unit to put between A and B.
    """

    def __init__(
        self,
        single: Collator,
        room: int,
        seed: int,
        *,
        units: Literal["codepoints", "subword_ids"] = "codepoints",
        separator: int = SEP,
    ) -> None:
        self.columns = (*single.columns, *(column for column in _NEEDED if column not in single.columns))
        self.length = single.length
        self.seed = seed
        self._single, self._room, self._units, self._separator = single, room, units, separator

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """`rows`: the columns of b windows, then those of the b windows of the second parts; sample ids int64 [b].

        Where both are of the same document, the second must be the first again.
        """
        num_pairs = len(sample_ids)
        drawn = random.uniform(self.seed, "cut", sample_ids, 2)
        joined: dict[str, list[np.ndarray]] = {column: [] for column in self._single.columns}
        from_elsewhere, num_first = np.zeros(num_pairs, dtype=np.int64), np.zeros(num_pairs, dtype=np.int64)
        for pair, (place_a, place_b) in enumerate(drawn.tolist()):
            a, b = ({column: rows[column][at] for column in self.columns} for at in (pair, num_pairs + pair))
            from_elsewhere[pair] = not np.array_equal(a["document"], b["document"])
            end_a, begin_b = self._cuts(a, b, place_a, place_b if from_elsewhere[pair] else place_a)
            num_a, num_b = fit(end_a, len(b[self._units]) - begin_b, self._room - 1)
            num_first[pair] = num_a
            join = join_characters if self._units == "codepoints" else join_subwords
            window = join(a, b, slice(end_a - num_a, end_a), slice(begin_b, begin_b + num_b), self._separator)
            for column, values in joined.items():
                values.append(window[column])
        arrays = self._single(joined, sample_ids)
        if self._units == "codepoints":
            arrays["num_characters"] = arrays["num_characters"] - 1  # the separator is none
        second = np.arange(self.length) >= (num_first + 2)[:, None]
        return {**arrays, "segments": (second & arrays["mask"]).astype(np.int64), "from_elsewhere": from_elsewhere}

    def _cuts(self, a: Window, b: Window, place_a: float, place_b: float) -> tuple[int, int]:
        """The unit before which A ends, and the unit with which B begins."""
        end_a, begin_b = cut(a, place_a), cut(b, place_b)
        if self._units == "subword_ids":
            return int(np.searchsorted(a["subword_starts"], end_a)), int(np.searchsorted(b["subword_starts"], begin_b))
        text = np.flatnonzero(~a["whitespace"][:end_a])
        return int(text[-1]) + 1 if len(text) else end_a, begin_b


def cut(window: Window, place: float) -> int:
    """The character at which a window is cut in two, `place` in [0, 1) of the way through the possible ones."""
    white = window["whitespace"]
    places = window["sentence_starts"][1:]
    if not len(places):
        places = np.flatnonzero(white[:-1] & ~white[1:]) + 1
    if not len(places):
        places = np.arange(1, max(len(white), 2))
    return min(int(places[int(place * len(places))]), len(white))


def fit(num_a: int, num_b: int, room: int) -> tuple[int, int]:
    """The most that fits of two parts: half of the room each, or more where the other needs less."""
    num_a = min(num_a, max(room - num_b, room // 2))
    return num_a, min(num_b, room - num_a)


def join_characters(a: Window, b: Window, part_a: slice, part_b: slice, separator: int) -> Window:
    """One window: these characters of `a`, the separator (as white space), these of `b`; subwords that are whole."""
    joined = {"whitespace": np.concatenate([a["whitespace"][part_a], [True], b["whitespace"][part_b]])}
    joined["codepoints"] = np.concatenate([a["codepoints"][part_a], [separator], b["codepoints"][part_b]])
    if "subword_ids" in a:
        spans = [_whole_subwords(a, part_a, 0), _whole_subwords(b, part_b, part_a.stop - part_a.start + 1)]
        joined.update({column: np.concatenate([one[column] for one in spans]) for column in _SPANS})
    return joined


def join_subwords(a: Window, b: Window, part_a: slice, part_b: slice, separator: int) -> Window:
    """One window: these subwords of `a`, the separator (of no characters), these of `b`, as if they followed."""
    one, other = ({column: window[column][part].astype(np.int64) for column in _SPANS}
                  for window, part in ((a, part_a), (b, part_b)))  # fmt: skip
    end = int(one["subword_ends"][-1]) if len(one["subword_ends"]) else 0
    shift = end - int(other["subword_starts"][0]) if len(other["subword_starts"]) else 0
    return {
        "subword_ids": np.concatenate([one["subword_ids"], [separator], other["subword_ids"]]),
        "subword_starts": np.concatenate([one["subword_starts"], [end], other["subword_starts"] + shift]),
        "subword_ends": np.concatenate([one["subword_ends"], [end], other["subword_ends"] + shift]),
    }


def _whole_subwords(window: Window, part: slice, at: int) -> Window:
    """The subwords that lie in `part` of the characters, when that part comes to begin at `at`."""
    first = int(np.searchsorted(window["subword_starts"], part.start))
    last = int(np.searchsorted(window["subword_ends"], part.stop, side="right"))
    chosen = {column: window[column][first:last].astype(np.int64) for column in _SPANS}
    chosen["subword_starts"] += at - part.start
    chosen["subword_ends"] += at - part.start
    return chosen
