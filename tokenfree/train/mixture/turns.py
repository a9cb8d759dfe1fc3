"""Whose turn it is: a sequence of directories in which each has its share of every prefix, within one sample.

K directories, T turns
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenfree.train.batches import counter_random as random

_MOST_ROUNDS = 64  # of changing places: 1 to 5 ms each


def fair_turns(weights: Sequence[int]) -> np.ndarray:
    """int64 [sum of weights]: directory d comes weights[d] times, and of the first n turns n * share within one.

    The turn goes to whom the deadline for the next one is nearest, of those who are not ahead (R. Tijdeman, "The
    chairman assignment problem", 1980): no directory is ever off by more than 1 - 1 / (2 K - 2).
    """
    total, slack = sum(weights), 2 * len(weights) - 2
    counts, turns = [0] * len(weights), []
    for turn in range(1, total + 1):
        entitled = (
            number for number, weight in enumerate(weights) if slack * (weight * turn - total * counts[number]) >= total
        )
        chosen = min(entitled, key=lambda number: (slack - 1 + slack * counts[number]) / weights[number])
        counts[chosen] += 1
        turns.append(chosen)
    return np.array(turns, dtype=np.int64)


def shuffled_turns(turns: np.ndarray, weights: Sequence[int], seed: int) -> np.ndarray:
    """Turns (int64 [T]) that have gone towards places drawn at random, as far as all stay within one of their share.

    The j-th of a directory draws its place from the j-th of as many equal stretches as the directory has turns;
    neighbours change places where both want to. Without it a directory would come at the same places of every batch
    where share and batch resonate, and some streams would hardly read of it.
    """
    turns, total = turns.copy(), sum(weights)
    distance = total / np.array(weights)
    drawn = random.uniform(seed, "turns of directories", np.arange(len(turns)), 1)[:, 0]
    wishes = np.empty(len(turns))
    for number, each in enumerate(distance):
        own = np.flatnonzero(turns == number)
        wishes[own] = (np.arange(len(own)) + drawn[own]) * each
    for round_ in range(min(_MOST_ROUNDS, int(distance.max()) + 2)):
        first = np.arange(round_ % 2, len(turns) - 1, 2)  # of each pair; the pairs do not overlap
        before, after = turns[first], turns[first + 1]
        change = (wishes[first] > wishes[first + 1]) & (before != after)
        for number, weight in enumerate(weights):
            ahead = total * np.cumsum(turns == number)[first] - weight * (first + 1)  # by so many total-ths of a turn
            change &= (before != number) | (ahead > 0)
            change &= (after != number) | (ahead < 0)
        for values in (turns, wishes):
            at = first[change]
            values[at], values[at + 1] = values[at + 1], values[at]
    return turns


def quotas_of(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers in proportion to `shares` (float64 [n], which sum to 1), int64 [n].

    They sum to `total` and are at least 1 each; the largest remainders are rounded up.
    """
    exact = np.round(shares * total, 6)  # powers differ in their last bits between processors
    quotas = np.maximum(exact.astype(np.int64), 1)
    missing = total - int(quotas.sum())
    if missing >= 0:
        quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
    else:  # rare ones were given more than their share: the commonest pays
        quotas[np.argmax(quotas)] += missing
    return quotas
