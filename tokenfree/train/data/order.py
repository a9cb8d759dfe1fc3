"""The order of the samples: sample g is a row of a shard, computed only from (shards, seed, smoothing, g).

C canonical streams divide every batch of B. Slot j belongs to stream j // (B / C), which counts its own
samples by t. A stream owns a fixed run of the rows of each language. A worker serves a few streams, so it
reads few shards.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import ShardEntry
from tokenfree.train.batches import counter_random as random
from tokenfree.train.data.mixture import PERIOD, Mixing, fair_turns, shuffled_turns

# Of the rules in this file: a run only resumes under the version it started with.
VERSION = 1
_MAX_TURNS = 4096  # largest sum of directories' weights with exact shares; else rounded to a part of a period


class Places(NamedTuple):
    """Places of samples, int64 [n] each."""

    shard: np.ndarray  # index into the shards
    row: np.ndarray  # row of the shard
    epoch: np.ndarray  # number of times that the stream has completed its rows of the sample's language


class _Visit(NamedTuple):
    """The segments of one (stream, language) in the order of one epoch.

    Each segment is a run of rows of one shard.
    """

    starts: np.ndarray  # first place of the segment among the stream's rows in this epoch
    shard: np.ndarray
    first: np.ndarray  # first row
    size: np.ndarray
    keys: np.ndarray  # of the permutation of its rows


def language_shares(characters: np.ndarray, smoothing: float) -> np.ndarray:
    """Return shares proportional to characters^smoothing, float64 [L]."""
    weights = np.asarray(characters, dtype=np.float64) ** smoothing
    return weights / weights.sum()


class Order:
    """The order of the samples.

    Raises UserError if the streams do not divide the batch, or there are no rows. The rows of a language are
    divided contiguously among the streams. If a language has fewer rows than there are streams, each stream
    reads all of them. A stream reads its rows of a language epoch by epoch. Each epoch has a new order of
    segments, and a new permutation of the rows of each segment.

    With several directories, each has its share of the first n samples for every n, to within one. The part
    of their rows that a stream owns rotates with every period.
    """

    def __init__(
        self,
        shards: Sequence[ShardEntry],
        *,
        seed: int,
        smoothing: float,
        streams: int,
        global_batch: int,
        mixing: Mixing | None = None,
    ) -> None:
        if global_batch % streams:
            near = -(-global_batch // streams) * streams
            raise UserError(
                f"train.global_batch: {global_batch} is not a multiple of train.streams ({streams}); make it {near}, "
                "or change train.streams"
            )
        self._rows = np.array([shard.rows for shard in shards], dtype=np.int64)
        filled = np.flatnonzero(self._rows)
        if not len(filled):
            raise UserError(
                "the split has no windows; preprocess more text, or with another validation_fraction"
            )
        self._mixing = mixing
        names = [
            s.language if mixing is None else f"{mixing.of_shard[i]}/{s.language}"
            for i, s in enumerate(shards)
        ]
        # With several directories, each has its own.
        languages, labels = np.unique([names[index] for index in filled.tolist()], return_inverse=True)
        self.languages: list[str] = languages.tolist()
        self._seed, self._streams, self._batch, self._each = (
            seed,
            streams,
            global_batch,
            global_batch // streams,
        )
        # Of each language, those with rows, int64 [n].
        self._shards = [filled[members] for members in _groups(labels)]
        characters = np.array([shard.characters for shard in shards], dtype=np.int64)
        characters, rows = (
            np.array([values[of].sum() for of in self._shards]) for values in (characters, self._rows)
        )
        self.shares = self._make_shares(characters, smoothing)
        edges = np.arange(streams + 1)[:, None] * rows // streams  # [C + 1, L]
        whole = rows < streams
        self._from = np.where(whole, 0, edges[:-1])
        self._to = np.where(whole, rows, edges[1:])
        self._visit = functools.lru_cache(maxsize=8192)(self._make_visit)
        self._languages, self._ranks, self._totals = self._make_period()

    def locate(self, ids: np.ndarray) -> Places:
        """Return the places of the samples `ids` (int64 [n], in any order)."""
        owner, language, draw = self._draws(ids)
        epoch, place = np.divmod(draw, (self._to - self._from)[owner, language])
        shard, first, size = (np.empty(len(ids), dtype=np.int64) for _ in range(3))
        keys = np.empty(len(ids), dtype=np.uint64)
        for members in _groups((epoch * self._streams + owner) * len(self.languages) + language):
            one = members[0]
            visit = self._visit(int(owner[one]), int(language[one]), int(epoch[one]))
            segment = np.searchsorted(visit.starts, place[members], side="right") - 1
            place[members] -= visit.starts[segment]
            shard[members], first[members] = visit.shard[segment], visit.first[segment]
            size[members], keys[members] = visit.size[segment], visit.keys[segment]
        return Places(shard, first + random.permute(place, size, keys), epoch)

    def _draws(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the stream whose rows each sample is from, its language, and the number of previous draws from them.

        In every period the batch is rotated by one stream, so after C periods all streams have had the same
        languages. With several directories the streams are rotated instead, so after C periods each has had
        the rows of all.
        """
        step, slot = np.divmod(ids, self._batch)
        period, within = np.divmod(step, len(self._languages) // self._batch)
        cycle, turns = np.divmod(period, self._streams)
        stream = slot // self._each
        if self._mixing is None:
            slot = (slot + period * self._each) % self._batch
            owner, first = stream, stream
        else:
            owner, first = (stream + turns) % self._streams, stream + 1
        entry = within * self._batch + slot
        language = self._languages[entry].astype(np.int64)
        previous_draws = self._totals[first + turns, language] - self._totals[first, language]
        return (
            owner,
            language,
            cycle * self._totals[self._streams, language] + previous_draws + self._ranks[entry],
        )

    def _make_shares(self, characters: np.ndarray, smoothing: float) -> np.ndarray:
        if self._mixing is None:
            return language_shares(characters, smoothing)
        shares = np.empty(len(characters))
        for number, weight in enumerate(self._mixing.weights):
            members = self._of_directory(number)
            shares[members] = (
                language_shares(characters[members], smoothing) * weight / sum(self._mixing.weights)
            )
        return shares

    def _of_directory(self, number: int) -> np.ndarray:
        return np.flatnonzero([name.startswith(f"{number}/") for name in self.languages])

    def _make_period(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the languages [T] of one period, and ranks [T], each the number of earlier samples in its stream.

        Totals are the samples of each language in the streams before stream c, over two rounds, [2 C + 1, L].
        """
        languages = self._turned_languages() if self._mixing is None else self._mixed_languages(self._mixing)
        names, slots = len(self.languages), np.arange(self._batch)
        # (stream, language)
        pairs = (slots // self._each * names + languages.reshape(-1, self._batch)).reshape(-1)
        order = np.argsort(pairs, kind="stable")
        counts = np.bincount(pairs, minlength=self._streams * names)
        ranks = np.empty(len(pairs), dtype=np.int64)
        ranks[order] = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
        by_stream = counts.reshape(self._streams, names)
        totals = np.cumsum(np.concatenate([by_stream[:1] * 0, by_stream, by_stream]), axis=0)
        return languages.astype(np.uint16), ranks.astype(np.int32), totals

    def _turned_languages(self) -> np.ndarray:
        """Return the languages of one period, int64 [T], for a single directory.

        Batches are rotated by random numbers of slots. Otherwise a stream could always get the same few
        languages if a share and the batch size resonate. (Separate sequences per stream missed a share of 3%
        by 6% of it.)
        """
        num_steps = -(-PERIOD // self._batch)
        languages = self._alternating(self.shares, num_steps * self._batch, np.arange(len(self.shares)))
        return self._turned(languages, "turns")

    def _mixed_languages(self, mixing: Mixing) -> np.ndarray:
        total = sum(mixing.weights)
        # Until weights and batches align.
        steps = total // math.gcd(total, self._batch) if total <= _MAX_TURNS else 1
        num_turns = -(-PERIOD // (steps * self._batch)) * steps * self._batch
        exact = total <= _MAX_TURNS
        weights = mixing.weights if exact else quotas_of(mixing.shares, num_turns).tolist()
        turns = np.tile(fair_turns(weights), num_turns // sum(weights))
        turns = shuffled_turns(turns, weights, self._seed)
        languages = np.empty(num_turns, dtype=np.int64)
        for number in range(len(weights)):
            members, places = self._of_directory(number), np.flatnonzero(turns == number)
            if not len(members):
                raise UserError(
                    f"data directory {number + 1} of {len(weights)} has no windows in the split; leave it out"
                )
            if len(places) < len(members):
                raise UserError(
                    f"data directory {number + 1} of {len(weights)}: its {len(members)} languages are given "
                    f"{len(places)} of {num_turns:,} samples; give it a larger weight"
                )
            of_it = self._alternating(self.shares[members] / self.shares[members].sum(), len(places), members)
            languages[places] = self._turned(of_it, f"turns {number}")
        return languages

    def _alternating(self, shares: np.ndarray, total: int, names: np.ndarray) -> np.ndarray:
        """Return a sequence of `total` languages from `names`, in which each has its quota in every stretch.

        The preferred position of the j-th of a language's q samples is (j + phase) / q of the sequence.
        """
        quotas = quotas_of(shares, total)
        numbers = np.arange(len(quotas))
        phases = random.uniform(self._seed, "language phases", names, 1)[:, 0]
        wanting = np.repeat(numbers, quotas)
        which = np.arange(len(wanting)) - np.repeat(np.cumsum(quotas) - quotas, quotas)
        wishes = (which + phases[wanting]) / quotas[wanting]
        return names[wanting[np.argsort(wishes, kind="stable")]]

    def _turned(self, languages: np.ndarray, purpose: str) -> np.ndarray:
        number, slot = np.divmod(np.arange(len(languages)), self._batch)
        # The last batch may be shorter.
        size = np.minimum(len(languages) - number * self._batch, self._batch)
        turns = (
            random.uniform(self._seed, purpose, np.arange(number[-1] + 1), 1)[:, 0] * self._batch
        ).astype(np.int64)
        return languages[number * self._batch + (slot + turns[number]) % size]

    def _make_visit(self, stream: int, language: int, epoch: int) -> _Visit:
        begin, end = self._from[stream, language], self._to[stream, language]
        shards = self._shards[language]
        after = np.cumsum(self._rows[shards])
        previous = after - self._rows[shards]
        first, last = np.maximum(begin, previous), np.minimum(end, after)
        owned = np.flatnonzero(first < last)
        name = random.key(self._seed, "order", stream, self.languages[language], epoch)
        order = np.argsort(random.derive(name, 2 * np.arange(len(owned))))
        keys = random.derive(name, 2 * np.arange(len(owned)) + 1)
        chosen = owned[order]
        size = (last - first)[chosen]
        return _Visit(
            np.cumsum(size) - size,
            shards[chosen],
            (first - previous)[chosen],
            size,
            keys[order],
        )


def _groups(labels: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def quotas_of(shares: np.ndarray, total: int) -> np.ndarray:
    """Return integers in proportion to `shares`, at least 1 each, which sum to `total`."""
    # The last bits of powers differ between processors.
    exact = np.round(shares * total, 6)
    quotas = np.maximum(exact.astype(np.int64), 1)
    missing = total - int(quotas.sum())
    if missing >= 0:
        quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
    else:  # rare ones got more than their share, at the expense of the commonest
        quotas[np.argmax(quotas)] += missing
    return quotas
