"""The order of the samples: sample g is a row of a shard, by arithmetic on (shards, seed, smoothing, g) alone.

C canonical streams divide every batch of B: slot j belongs to stream j // (B / C), whose own samples are counted by t.
A stream owns a fixed run of the rows of each language, so that a worker, which serves a few streams, reads few shards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches import counter_random as random

VERSION = 1  # of the rules in this file: a run goes on only under those it began with
PERIOD = 1 << 16  # samples (made up to whole batches) after which the sequence of languages repeats


class Counts(Protocol):
    """What the order needs of a shard; `tokenfree.preprocess.dataset.manifest.ShardEntry` is one."""

    @property
    def language(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def characters(self) -> int: ...


class Places(NamedTuple):
    """Where samples are: int64 [n] each."""

    shard: np.ndarray  # index into the shards
    row: np.ndarray  # of the shard
    epoch: np.ndarray  # how often the stream has been through its rows of the sample's language


class _Visit(NamedTuple):
    """The segments of one (stream, language) in the order of one epoch, each a run of rows of one shard."""

    starts: np.ndarray  # the segment's first place among the stream's rows in this epoch
    shard: np.ndarray
    first: np.ndarray  # first row
    size: np.ndarray
    keys: np.ndarray  # of the permutation of its rows


def language_shares(characters: np.ndarray, smoothing: float) -> np.ndarray:
    """float64 [L], p_l proportional to (characters_l)^smoothing: 1 keeps the corpus's shares, 0 makes all equal."""
    weights = np.asarray(characters, dtype=np.float64) ** smoothing
    return weights / weights.sum()


class Order:
    """Which row each sample is.

    Rows of a language are divided contiguously over the streams; a language with fewer rows than streams is read whole
    by each of them. A stream goes through its rows of a language epoch by epoch: its segments in an order drawn anew,
    the rows of a segment in a permutation drawn anew. Languages alternate by exact quotas (see `_make_period`).

    Raises:
        UserError: the streams do not divide the batch, or there are no rows.
    """

    def __init__(
        self, shards: Sequence[Counts], *, seed: int, smoothing: float, streams: int, global_batch: int
    ) -> None:
        if global_batch % streams:
            below = global_batch // streams * streams
            near = f"{below} or {below + streams}" if below else f"{streams}"
            raise UserError(
                f"train.global_batch: {global_batch} is not a multiple of train.streams ({streams}); make it {near}, "
                "or choose other streams"
            )
        filled = [(index, shard) for index, shard in enumerate(shards) if shard.rows]
        if not filled:
            raise UserError("the split has no windows; preprocess more text, or with another validation_fraction")
        self.languages = sorted({shard.language for _, shard in filled})
        self._seed, self._streams, self._batch, self._each = seed, streams, global_batch, global_batch // streams
        self._shards = [[(i, s.rows) for i, s in filled if s.language == name] for name in self.languages]
        characters = [sum(s.characters for _, s in filled if s.language == name) for name in self.languages]
        self.shares = language_shares(np.array(characters), smoothing)
        rows = np.array([sum(size for _, size in of) for of in self._shards])
        edges = np.arange(streams + 1)[:, None] * rows // streams  # [C + 1, L]
        whole = rows < streams
        self._from = np.where(whole, 0, edges[:-1])
        self._to = np.where(whole, rows, edges[1:])
        self._visit = functools.lru_cache(maxsize=8192)(self._make_visit)
        self._languages, self._ranks, self._totals = self._make_period()

    def streams_of(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The stream of each sample and its number there, int64 [n] each; `ids` is int64 [n]."""
        step, slot = np.divmod(ids, self._batch)
        return slot // self._each, step * self._each + slot % self._each

    def locate(self, ids: np.ndarray) -> Places:
        """The places of the samples `ids` (int64 [n], any order). Costs about a microsecond a sample, in thousands."""
        stream, _ = self.streams_of(ids)
        language, draw = self._draws(ids)
        epoch, place = np.divmod(draw, (self._to - self._from)[stream, language])
        shard, first, size = (np.empty(len(ids), dtype=np.int64) for _ in range(3))
        keys = np.empty(len(ids), dtype=np.uint64)
        group = (epoch * self._streams + stream) * len(self.languages) + language
        for members in _groups(group):
            one = members[0]
            visit = self._visit(int(stream[one]), int(language[one]), int(epoch[one]))
            segment = np.searchsorted(visit.starts, place[members], side="right") - 1
            place[members] -= visit.starts[segment]
            shard[members], first[members] = visit.shard[segment], visit.first[segment]
            size[members], keys[members] = visit.size[segment], visit.keys[segment]
        return Places(shard, first + random.permute(place, size, keys), epoch)

    def _draws(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The language of each sample, and how many samples of it its stream had before: int64 [n] each.

        With every period the batch is turned by one stream, so that after C of them all streams had the same.
        """
        step, slot = np.divmod(ids, self._batch)
        period, within = np.divmod(step, len(self._languages) // self._batch)
        turned = (slot + period * self._each) % self._batch
        entry = within * self._batch + turned
        language = self._languages[entry].astype(np.int64)
        cycle, turns = np.divmod(period, self._streams)
        stream = slot // self._each
        before = self._totals[stream + turns, language] - self._totals[stream, language]
        return language, cycle * self._totals[self._streams, language] + before + self._ranks[entry]

    def _make_period(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The languages of one period [T], for each how many of its language its stream had before [T], and the
        number of samples of each language in the streams before stream c, counting round and round [2 C + 1, L].

        The j-th of the q samples of a language wants to be at (j + phase) / q of the period; sorting these wishes of
        all languages gives every language its quota in every stretch, to about one sample. Batches are then turned by
        random numbers of slots: else a stream could get the same few languages for ever where a share and the batch
        resonate. (Streams with sequences of their own were tried: over 10,000 samples 64 of them
        missed a share of 3% by 6% of it, one sequence misses it by less than 1%.)
        """
        num_steps = -(-PERIOD // self._batch)
        quotas = _quotas(self.shares, num_steps * self._batch)
        names = np.arange(len(quotas))
        phases = random.uniform(self._seed, "language phases", names, 1)[:, 0]
        wanting = np.repeat(names, quotas)
        numbers = np.arange(len(wanting)) - np.repeat(np.cumsum(quotas) - quotas, quotas)
        wishes = (numbers + phases[wanting]) / quotas[wanting]
        languages = wanting[np.argsort(wishes, kind="stable")].reshape(num_steps, self._batch)
        turns = (random.uniform(self._seed, "turns", np.arange(num_steps), 1) * self._batch).astype(np.int64)
        slots = np.arange(self._batch)
        languages = np.take_along_axis(languages, (slots + turns) % self._batch, axis=1)

        pairs = (slots // self._each * len(names) + languages).reshape(-1)  # (stream, language)
        order = np.argsort(pairs, kind="stable")
        counts = np.bincount(pairs, minlength=self._streams * len(names))
        ranks = np.empty(len(pairs), dtype=np.int64)
        ranks[order] = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
        by_stream = counts.reshape(self._streams, len(names))
        totals = np.cumsum(np.concatenate([by_stream[:1] * 0, by_stream, by_stream]), axis=0)
        return languages.reshape(-1).astype(np.uint16), ranks.astype(np.int32), totals

    def _make_visit(self, stream: int, language: int, epoch: int) -> _Visit:
        begin, end = self._from[stream, language], self._to[stream, language]
        shards = np.array(self._shards[language])  # [shards, (index, rows)]
        after = np.cumsum(shards[:, 1])
        first, last = np.maximum(begin, after - shards[:, 1]), np.minimum(end, after)
        owned = np.flatnonzero(first < last)
        name = random.key(self._seed, "order", stream, self.languages[language], epoch)
        order = np.argsort(random.derive(name, 2 * np.arange(len(owned))))
        keys = random.derive(name, 2 * np.arange(len(owned)) + 1)
        chosen = owned[order]
        size = (last - first)[chosen]
        return _Visit(
            np.cumsum(size) - size, shards[chosen, 0], first[chosen] - (after - shards[:, 1])[chosen], size, keys[order]
        )


def _quotas(shares: np.ndarray, total: int) -> np.ndarray:
    """int64 [L] that sum to `total`, at least 1 each: the largest remainders are rounded up."""
    exact = np.round(shares * total, 6)  # powers differ in their last bits between processors
    quotas = np.maximum(exact.astype(np.int64), 1)
    missing = total - int(quotas.sum())
    if missing >= 0:
        quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
    else:  # rare languages were given more than their share: the commonest pays
        quotas[np.argmax(quotas)] += missing
    return quotas


def _groups(labels: np.ndarray) -> list[np.ndarray]:
    """The indices of equal labels together."""
    order = np.argsort(labels, kind="stable")
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, edges)
