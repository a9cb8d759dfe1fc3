"""Examples of two parts, [CLS] A [SEP] B [SEP].

In half of them B follows A in its document; else B is from another. Next-sentence prediction is BERT's
(Devlin et al. 2019, section 3.1); CANINE keeps it (arXiv 2103.06874, section 3.2). Two windows are joined
into one with a separator inside. A collator of single windows then masks and frames it.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from tokenfree.preprocess.text.specials import SEP
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays, Collator, Rows

_NEEDED = ("document", "sentence_starts", "whitespace")
_SPANS = ("subword_ids", "subword_starts", "subword_ends")
_ELSEWHERE = 0.5  # share of the pairs

Units = Literal["codepoints", "subword_ids"]
Window = dict[str, np.ndarray]  # the columns of one row


class Cut(NamedTuple):
    """The places where the two windows of a pair are cut, in units of the input, for B from either window."""

    end_a: int  # end of A, which is the `num_a` units of the first window before this one
    begin_next: int  # start of B in the first window
    begin_other: int  # start of B in the second window
    num_a: int
    num_b: int


class PairCollator(Collator):
    """Collator of pairs of windows, which adds two arrays to those of `single`, a collator of at most `room` units.

    `segments`, int64 [b, length], is 0 up to and including the first SEP, 1 up to and including the second,
    and 0 for padding. `from_elsewhere`, int64 [b], is 0 if B follows A and 1 if B is from another document.
    Only the text reveals which: `cut_pair` cuts both windows before the source of B is drawn.
    """

    def __init__(
        self, single: Collator, room: int, seed: int, *, units: Units = "codepoints", separator: int = SEP
    ) -> None:
        self.columns = (*single.columns, *(column for column in _NEEDED if column not in single.columns))
        self.length = single.length
        self.seed = seed
        self._single, self._room, self._separator = single, room, separator
        self._units: Units = units

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """Return the arrays of b pairs. `sample_ids` is int64 [b].

        `rows` has the columns of the b first windows, then those of the b second windows. If both windows of
        a pair are from the same document, they must be the same window.
        """
        drawn_elsewhere = random.uniform(self.seed, "next sentence", sample_ids, 1)[:, 0] < _ELSEWHERE
        pairs, cuts = list(self._pairs(rows, len(sample_ids))), self.cuts(rows, sample_ids)
        elsewhere = (
            np.array([not np.array_equal(a["document"], b["document"]) for a, b in pairs], dtype=bool)
            & drawn_elsewhere
        )
        joined: dict[str, list[np.ndarray]] = {column: [] for column in self._single.columns}
        join = join_characters if self._units == "codepoints" else join_subwords
        for (a, other), cut, is_other in zip(pairs, cuts, elsewhere.tolist(), strict=True):
            b, begin = (other, cut.begin_other) if is_other else (a, cut.begin_next)
            parts = slice(cut.end_a - cut.num_a, cut.end_a), slice(begin, begin + cut.num_b)
            window = join(a, b, *parts, self._separator)
            for column, values in joined.items():
                values.append(window[column])
        arrays = self._single(joined, sample_ids)
        if self._units == "codepoints":
            # Without the separator.
            arrays["num_characters"] = arrays["num_characters"] - 1
        num_first = np.array([cut.num_a for cut in cuts], dtype=np.int64)
        second = np.arange(self.length) >= (num_first + 2)[:, None]
        segments = (second & arrays["mask"]).astype(np.int64)
        return {**arrays, "segments": segments, "from_elsewhere": elsewhere.astype(np.int64)}

    def cuts(self, rows: Rows, sample_ids: np.ndarray) -> list[Cut]:
        places = random.uniform(self.seed, "cut", sample_ids, 1)[:, 0].tolist()
        pairs = self._pairs(rows, len(sample_ids))
        return [
            cut_pair(a, b, place, self._units, self._room - 1)
            for (a, b), place in zip(pairs, places, strict=True)
        ]

    def _pairs(self, rows: Rows, num_pairs: int) -> Iterator[tuple[Window, Window]]:
        windows = [{column: rows[column][at] for column in self.columns} for at in range(2 * num_pairs)]
        return zip(windows[:num_pairs], windows[num_pairs:], strict=True)


def cut_pair(first: Window, second: Window, place: float, units: Units, room: int) -> Cut:
    """Cut the windows of a pair into parts of at most `room` units together.

    The first window is cut at the start of a sentence, chosen by `place` in [0, 1), the second at one where
    about as much text follows. If one of them has no second sentence, both are cut at the start of a word, or
    else inside one.

    B has the same length from either window, and ends with a sentence in both or in neither. If both parts
    are too long, A loses its beginning and B its end.

    So lengths and borders do not depend on the window that gives B. With a cut at any start of a sentence in
    the second window, the length of B's last sentence would reveal the answer for 54% of the pairs.
    """
    for places, other_places in zip(cut_places(first), cut_places(second), strict=True):
        if len(places) and len(other_places):
            break
    else:  # windows of one character
        return Cut(len(first[units]), len(first[units]), len(second[units]), min(len(first[units]), room), 0)
    at = places[int(place * len(places))]
    begin_next = int(_to_units(first, units, at))
    end_a = begin_next if units == "subword_ids" else _end_of_text(first, int(at))
    follows, num_second = len(first[units]) - begin_next, len(second[units])
    begins = _to_units(second, units, other_places)
    begin_other = int(begins[np.argmin(np.abs(num_second - begins - follows))])
    num_a, num_b = truncate_pair(end_a, min(follows, num_second - begin_other), room)
    while num_b > 1 and (
        _ends_sentence(first, units, begin_next + num_b) != _ends_sentence(second, units, begin_other + num_b)
    ):
        num_b -= 1
    return Cut(end_a, begin_next, begin_other, num_a, num_b)


def cut_places(window: Window) -> Iterator[np.ndarray]:
    """Yield the characters at which a window can be cut, except its start: int64 [any] each, ascending.

    They are starts of sentences, then starts of words inside sentences, then places inside words.
    """
    white, sentences = window["whitespace"], window["sentence_starts"].astype(np.int64)
    yield sentences[(sentences > 0) & (sentences < len(white))]
    yield np.setdiff1d(np.flatnonzero(white[:-1] & ~white[1:]) + 1, sentences)
    yield np.setdiff1d(np.flatnonzero(~white[:-1] & ~white[1:]) + 1, sentences)


def _end_of_text(window: Window, at: int) -> int:
    text = np.flatnonzero(~window["whitespace"][:at])
    return int(text[-1]) + 1 if len(text) else at


def _to_units(window: Window, units: Units, characters: np.ndarray) -> np.ndarray:
    return characters if units == "codepoints" else np.searchsorted(window["subword_starts"], characters)


def _ends_sentence(window: Window, units: Units, end: int) -> bool:
    white = window["whitespace"]
    if units == "subword_ids":
        starts = window["subword_starts"]
        end = int(starts[end]) if end < len(starts) else len(white)
    sentences = window["sentence_starts"]
    number = int(np.searchsorted(sentences, end))
    following = int(sentences[number]) if number < len(sentences) else len(white)
    return bool(white[end:following].all())


def truncate_pair(num_a: int, num_b: int, room: int) -> tuple[int, int]:
    """Return how many units of each part fit into `room`: half of it each, or more if the other part needs less."""
    num_a = min(num_a, max(room - num_b, room // 2))
    return num_a, min(num_b, room - num_a)


def join_characters(a: Window, b: Window, part_a: slice, part_b: slice, separator: int) -> Window:
    """Join these characters of `a`, the separator (as white space) and these characters of `b` into one window.

    It has the columns `whitespace`, `codepoints` and, if `a` has them, those of whole subwords.
    """
    joined = {
        "whitespace": np.concatenate([a["whitespace"][part_a], [True], b["whitespace"][part_b]]),
        "codepoints": np.concatenate([a["codepoints"][part_a], [separator], b["codepoints"][part_b]]),
    }
    if "subword_ids" in a:
        spans = [_whole_subwords(a, part_a, 0), _whole_subwords(b, part_b, part_a.stop - part_a.start + 1)]
        joined.update({column: np.concatenate([one[column] for one in spans]) for column in _SPANS})
    return joined


def join_subwords(a: Window, b: Window, part_a: slice, part_b: slice, separator: int) -> Window:
    """Join these subwords of `a`, the separator and these subwords of `b`, with offsets as if `b` followed in `a`."""
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
    """Return the subwords that lie within `part` of the characters, with offsets as if that part began at `at`."""
    first = int(np.searchsorted(window["subword_starts"], part.start))
    last = int(np.searchsorted(window["subword_ends"], part.stop, side="right"))
    chosen = {column: window[column][first:last].astype(np.int64) for column in _SPANS}
    chosen["subword_starts"] += at - part.start
    chosen["subword_ends"] += at - part.start
    return chosen
