"""What each knob does to a metric over all trials: means with intervals, and its share of the variance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenfree.train.sweep.results.compare import MeanInterval, mean_interval
from tokenfree.train.sweep.results.trial_result import is_number, shown

LEVELS = 8  # a knob with more different numbers than this is put into BINS of about as many trials each
BINS = 4
TREES, SHUFFLES = 64, 32


@dataclass(frozen=True)
class Level:
    """One value of a knob, or a range of numbers: the indices of its trials, and the mean of their metric."""

    label: str
    trials: tuple[int, ...]
    interval: MeanInterval


@dataclass(frozen=True)
class Importance:
    """The share of the metric's variance that one knob explains by itself.

    `low` and `high` hold 95% of the trees; a knob without any effect gets a share below `chance` in 95% of all cases.
    """

    knob: str
    share: float
    low: float
    high: float
    chance: float


def ordered_cells(values: Sequence[Any], metric: Sequence[float] | None = None) -> tuple[np.ndarray, list[Any]]:
    """The index of each value among the different ones, and these: absent first, numbers in order, then the others.

    Others stand in the order of their mean metric where it is given, so that a tree finds their best division by one
    cut (Breiman et al. 1984), else in that of their text.
    """
    keys = [json.dumps(value, sort_keys=True) for value in values]
    different = dict(zip(keys, values, strict=True))

    def order(key: str) -> tuple[int, float, str]:
        value = different[key]
        if value is None or is_number(value):
            return (0, 0.0, "") if value is None else (1, float(value), "")
        if metric is None:
            return 2, 0.0, key
        return 2, float(np.mean([m for k, m in zip(keys, metric, strict=True) if k == key])), key

    ordered = sorted(different, key=order)
    indices = {key: index for index, key in enumerate(ordered)}
    return np.array([indices[key] for key in keys], dtype=int), [different[key] for key in ordered]


def levels(values: Sequence[Any], metric: Sequence[float]) -> list[Level]:
    """Mean and 95% interval of the metric [trials] at each value of a knob [trials], values in order.

    The interval is Student's t over the trials with that value: it holds what seeds and the other knobs did to them.
    """
    cells, names = ordered_cells(values)
    groups = np.arange(len(names))
    if is_range(values):
        absent = int(names[0] is None)
        ends = np.quantile(cells[cells >= absent], np.arange(1, BINS) / BINS)
        groups[absent:] = 1 + np.searchsorted(ends, groups[absent:], side="right")
    found = []
    for group in sorted(set(groups.tolist())):
        inside = [index for index, cell in enumerate(cells) if groups[cell] == group]
        members = [names[cell] for cell in np.flatnonzero(groups == group)]
        label = shown(members[0]) if len(members) == 1 else f"{members[0]:.3g} to {members[-1]:.3g}"
        mean = mean_interval([metric[index] for index in inside])
        if mean is not None:
            found.append(Level(label or "not set", tuple(inside), mean))
    return found


def importance(
    settings: Sequence[Mapping[str, Any]], metric: Sequence[float], knobs: Sequence[str], seed: int = 0
) -> list[Importance]:
    """Each knob's main effect as a share of the metric's variance, largest first (functional ANOVA over a forest).

    The forest of regression trees is grown on bootstrap samples; the share is the variance of a tree's mean given the
    knob alone, over the variance of the tree (Hutter, Hoos and Leyton-Brown 2014, equations 6 to 9), where each knob is
    distributed as in the trials. What is left to 1 is the knobs' acting together. The same on shuffled metrics says
    what chance alone gives.
    """
    tables = [ordered_cells([setting.get(knob) for setting in settings], metric) for knob in knobs]
    cells = np.stack([cells for cells, _ in tables], axis=1)
    weights = [np.bincount(column) / len(column) for column in cells.T]
    target = np.asarray(metric, dtype=float)
    random = np.random.default_rng(seed)
    trees = np.stack([_shares(cells, target, weights, random) for _ in range(TREES)])
    shuffled = [
        np.mean([_shares(cells, random.permutation(target), weights, random) for _ in range(8)], axis=0)
        for _ in range(SHUFFLES)
    ]
    low, high = np.quantile(trees, [0.025, 0.975], axis=0)
    chance = np.quantile(shuffled, 0.95, axis=0)
    found = [
        Importance(knob, *(float(part[index]) for part in (trees.mean(0), low, high, chance)))
        for index, knob in enumerate(knobs)
    ]
    return sorted(found, key=lambda item: (-item.share, item.knob))


def is_range(values: Sequence[Any]) -> bool:
    """Whether the values of a knob [trials] are points of a range, and not a few numbers or names to choose among."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    if not all(is_number(value) or value is None for value in values):
        return False
    continuous = any(isinstance(value, float) and not value.is_integer() for value in values)
    return len(different) > LEVELS or (continuous and len(different) > max(BINS, len(values) // 2))


def _shares(
    cells: np.ndarray, metric: np.ndarray, weights: Sequence[np.ndarray], random: np.random.Generator
) -> np.ndarray:
    """Main-effect shares [knobs] of one tree grown on a bootstrap sample of `cells` [trials, knobs]."""
    chosen = random.integers(0, len(metric), len(metric))
    boxes, means = _grow(cells[chosen], metric[chosen], [len(weight) for weight in weights])
    leaves = np.array(means)
    inside = [  # [leaves, values of the knob], for each knob
        (np.arange(len(weight)) >= boxes[:, knob, :1]) & (np.arange(len(weight)) < boxes[:, knob, 1:])
        for knob, weight in enumerate(weights)
    ]
    volumes = np.stack([mask @ weight for mask, weight in zip(inside, weights, strict=True)], axis=1)
    mass = volumes.prod(1)
    mean = mass @ leaves
    variance = mass @ (leaves - mean) ** 2
    if variance <= 1e-12 * (1 + mean * mean):
        return np.zeros(len(weights))
    shares = []
    for knob, weight in enumerate(weights):
        others = np.delete(volumes, knob, axis=1).prod(1)
        given = (others * leaves) @ inside[knob]  # the tree's mean at each value of this knob
        shares.append(weight @ (given - mean) ** 2 / variance)
    return np.array(shares)


def _grow(cells: np.ndarray, metric: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, list[float]]:
    """A regression tree: boxes [leaves, knobs, 2] of cells (from, to) that fill the space, and the means in them."""
    smallest = max(2, len(metric) // 32)
    waiting = [(np.arange(len(metric)), np.array([[0, size] for size in sizes]))]
    boxes, means = [], []
    while waiting:
        rows, box = waiting.pop()
        cut = _cut(cells[rows], metric[rows], smallest)
        if cut is None:
            boxes.append(box)
            means.append(float(metric[rows].mean()))
            continue
        knob, cell = cut
        lower, upper = box.copy(), box.copy()
        lower[knob, 1] = upper[knob, 0] = cell
        under = cells[rows, knob] < cell
        waiting += [(rows[under], lower), (rows[~under], upper)]
    return np.stack(boxes), means


def _cut(cells: np.ndarray, metric: np.ndarray, smallest: int) -> tuple[int, int] | None:
    """The knob and first upper cell of the cut that lowers the squared error most; None where no cut does."""
    count = len(metric)
    if count < 2 * smallest:
        return None
    order = np.argsort(cells, axis=0, kind="stable")
    ordered = np.take_along_axis(cells, order, axis=0)
    sums = np.cumsum(metric[order] - metric.mean(), axis=0)[:-1]
    left = np.arange(1, count)[:, None]
    gain = sums**2 / left + sums**2 / (count - left)
    allowed = (ordered[1:] > ordered[:-1]) & (left >= smallest) & (count - left >= smallest)
    gain = np.where(allowed, gain, 0.0)
    row, knob = np.unravel_index(int(gain.argmax()), gain.shape)
    if gain[row, knob] <= 1e-12 * count:
        return None
    return int(knob), int(ordered[row + 1, knob])
