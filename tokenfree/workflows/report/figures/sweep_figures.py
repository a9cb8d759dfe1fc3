"""The pictures of a sweep; shapes, dashes and labels say all that colours say."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tokenfree.train.sweep.results.compare import MeanInterval
from tokenfree.train.sweep.results.effects import Importance, Level, is_range, ordered_cells
from tokenfree.train.sweep.results.trial_result import is_number, shown
from tokenfree.workflows.report.figures.drawing import (
    COLOURS,
    FAINT,
    INK,
    MUTED,
    PAPER,
    RANKS,
    are_wide,
    cut,
    draw,
    log_x,
    plain_numbers,
)


def learning_curves(
    curves: Sequence[tuple[str, str, Sequence[float], Sequence[float]]],
    *,
    best: tuple[str, Sequence[str]],
    x: str,
    y: str,
    title: str,
) -> str:
    """Curves of all trials (name, state, xs, ys), those of the best setting (name, trials) over the others.

    The shape at the end of a curve says how the trial ended.
    """
    ends = {"finished": "o", "stopped": "x", "failed": "P", "running": ">"}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        seen: dict[str, Any] = {}
        for name, state, xs, ys in sorted(curves, key=lambda curve: curve[0] in best[1]):
            chosen = name in best[1]
            colour = COLOURS[0] if chosen else MUTED
            axes.plot(xs, ys, color=colour, linewidth=2.2 if chosen else 0.9, zorder=3 if chosen else 2)
            (end,) = axes.plot(xs[-1:], ys[-1:], ends.get(state, "o"), color=colour, markersize=5, zorder=3)
            seen[f"best: {cut(best[0], 24)}" if chosen else state] = end
        axes.set(title=title, xlabel=x, ylabel=y)
        axes.margins(0.06)
        lengths = [xs[-1] for _, _, xs, _ in curves]
        if are_wide(lengths):
            log_x(axes, [min(xs[0] for _, _, xs, _ in curves), *lengths])
        if seen:
            axes.legend(list(seen.values()), list(seen), loc="best", fontsize=8)
        plain_numbers(axes)

    return draw(paint, label=f"{title}: {y} by {x} of every trial")


def effect(
    knob: str, values: Sequence[Any], losses: Sequence[float], levels: Sequence[Level], *, y: str,
    limits: tuple[float, float], log: bool,
) -> str:  # fmt: skip
    """One knob, on a `log` axis or not: every trial as a dot, and the mean of each level with its 95% interval.

    An interval that runs out of the `limits` of the picture ends there in an arrowhead.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        ranges = is_range(values) and None not in values
        if ranges:
            xs = [float(value) for value in values]
            centres = [float(np.median([xs[index] for index in level.trials])) for level in levels]
            if log:
                log_x(axes, xs)
        else:
            at = {index: column for column, level in enumerate(levels) for index in level.trials}
            xs = [at[index] for index in range(len(values))]
            centres = [float(index) for index in range(len(levels))]
            labels = [cut(level.label, 20) for level in levels]
            tilted = sum(map(len, labels)) > 26
            axes.set_xticks(
                centres, labels, rotation=35 if tilted else 0, ha="right" if tilted else "center", fontsize=8
            )
            axes.set_xlim(-0.6, len(levels) - 0.4)
        axes.scatter(xs, losses, s=12, color=MUTED, zorder=2)
        for level, centre in zip(levels, centres, strict=True):
            mean, half = level.interval.mean, level.interval.half
            face = PAPER if half is None else COLOURS[0]
            axes.plot(centre, mean, color=COLOURS[0], marker="D", markersize=5, markerfacecolor=face, zorder=4)
            for arrow, (tip, is_cut) in zip("v^", ends_within(level.interval, limits), strict=False):
                axes.plot([centre, centre], [mean, tip], color=COLOURS[0], linewidth=1.4, zorder=3)
                axes.plot(
                    centre, tip, arrow if is_cut else "_", color=COLOURS[0], markersize=7, clip_on=False, zorder=3,
                    markerfacecolor=PAPER,
                )  # fmt: skip
        axes.set_ylim(*limits)
        axes.set(title=cut(knob, 34), ylabel=y)
        plain_numbers(axes, x=ranges)

    return draw(paint, width=3.4, height=2.6, label=f"{y} by {knob}: every trial, and means with 95% intervals")


def ends_within(interval: MeanInterval, limits: tuple[float, float]) -> list[tuple[float, bool]]:
    """The lower and the upper end of an interval as they are drawn within `limits`, and whether each is cut there."""
    if interval.half is None:
        return []
    low, high = interval.mean - interval.half, interval.mean + interval.half
    return [(max(low, limits[0]), low < limits[0]), (min(high, limits[1]), high > limits[1])]


def importance(found: Sequence[Importance]) -> str:
    """Shares of the variance as bars, with the spread over trees and what chance alone would give."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        heights = np.arange(max(len(found), 3))[::-1][: len(found)]
        axes.barh(heights, [100 * item.share for item in found], color=COLOURS[0], height=0.5, label="main effect")
        for height, item in zip(heights, found, strict=True):
            axes.plot([100 * item.low, 100 * item.high], [height, height], color=INK, linewidth=1)
        axes.scatter(
            [100 * item.chance for item in found], heights, marker="|", s=180, color=COLOURS[1], linewidth=2, zorder=3,
            label="a knob without effect stays left of this",
        )  # fmt: skip
        axes.set_yticks(heights, [cut(item.knob, 26) for item in found])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlim(0, 100)
        axes.set_ylim(-0.6, max(len(found), 3) - 0.4)
        axes.set(title="Importance of each knob", xlabel="% of the variance between trials")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.42 + 0.03 * min(len(found), 6)), fontsize=8)

    return draw(paint, height=0.3 * max(len(found), 3) + 1.5, label="Share of the variance that each knob explains")


def parallel(
    settings: Sequence[tuple[str, Mapping[str, Any], float]], knobs: Sequence[str], *, y: str, log: Collection[str]
) -> str:
    """Parallel coordinates, lying flat so that names have room: an axis a knob, a line a setting (name, values, loss).

    The axes of the knobs in `log` are logarithmic.

    The better a line, the darker and thicker on light paper; the best one has dots.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        ranked = sorted(settings, key=lambda item: item[2])
        columns = [_coordinates([values.get(knob) for _, values, _ in ranked], knob in log) for knob in knobs]
        losses = [loss for _, _, loss in ranked]
        low, high = losses[0], losses[-1]
        columns.append(
            ([(loss - low) / ((high - low) or 1) for loss in losses], [(0.0, f"{low:.3f}"), (1.0, f"{high:.3f}")])
        )
        rows = np.arange(len(columns))[::-1]
        ground = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.2, "alpha": 0.85}
        for index in range(len(ranked))[::-1]:
            fifth = index * len(RANKS) // len(ranked)
            axes.plot(
                [column[index] for column, _ in columns], rows, color=RANKS[fifth], zorder=10 - fifth,
                linewidth=2.6 if index == 0 else (1.5, 1.2, 1.0, 0.9, 0.8)[fifth], marker="o" if index == 0 else None,
                markersize=5,
            )  # fmt: skip
        titles = [f"{knob} (logarithmic)" if knob in log else knob for knob in knobs]
        for row, (_, ticks), name in zip(rows, columns, [*titles, y], strict=True):
            axes.axhline(row, color=FAINT, linewidth=1, zorder=1)
            axes.annotate(
                cut(name, 60), (0, row), xytext=(0, 15), textcoords="offset points", fontsize=9, fontweight="bold",
                bbox=ground, zorder=30,
            )  # fmt: skip
            for x, text in ticks:
                axes.plot([x], [row], "|", color=FAINT, markersize=7, zorder=1)
                side = {0.0: "left", 1.0: "right"}.get(x, "center")
                axes.annotate(
                    cut(text, 18), (x, row), xytext=(0, -13), textcoords="offset points", ha=side, fontsize=8,
                    color=INK, bbox=ground, zorder=30,
                )  # fmt: skip
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.45, len(columns) - 0.4)
        axes.axis("off")

    return draw(paint, width=7.6, height=0.85 * (len(knobs) + 1) + 0.3, label=f"All settings and their {y}")


def change_of_rank(rows: Sequence[tuple[str, int, int]], *, left: str, right: str, best: str) -> str:
    """Rank (1 is best) of settings (name, left, right) in two comparisons, joined by lines."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for name, first, second in rows:
            rises, falls = second < first, second > first
            colour = COLOURS[2] if rises else COLOURS[1] if falls else MUTED
            axes.plot(
                [0, 1], [first, second], color=colour, linestyle="-" if rises else "--" if falls else ":", marker="o",
                markersize=4, linewidth=2.4 if name == best else 1.3,
            )  # fmt: skip
            for x, rank, side in ((-0.04, first, "right"), (1.04, second, "left")):
                axes.annotate(f"{rank}. ({_number(name)})", (x, rank), ha=side, va="center", fontsize=8)
        axes.set_xlim(-0.35, 1.35)
        axes.set_xticks([0, 1], [left, right])
        axes.set_yticks([])
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.margins(y=0.08)
        axes.invert_yaxis()

    height = 0.21 * max(len(rows), 3) + 0.7
    return draw(paint, height=height, label=f"Rank of each setting {left} and {right}")


def intervals(rows: Sequence[tuple[str, MeanInterval, Sequence[float]]], *, x: str) -> str:
    """Mean and 95% interval of settings (name, interval, one value a seed), the first on top."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        heights = np.arange(max(len(rows), 3))[::-1][: len(rows)]
        for height, (_, found, values) in zip(heights, rows, strict=True):
            axes.scatter(values, [height] * len(values), s=14, color=MUTED, marker="|", zorder=2)
            axes.errorbar(
                found.mean, height, xerr=found.half, color=COLOURS[0], marker="D", markersize=5, capsize=3,
                markerfacecolor=PAPER if found.half is None else COLOURS[0], zorder=3,
            )  # fmt: skip
        axes.set_yticks(heights, [_number(name) for name, _, _ in rows])
        axes.set_ylim(-0.6, max(len(rows), 3) - 0.4)
        axes.set(title="Mean over seeds with 95% intervals", xlabel=x)
        plain_numbers(axes, y=False)

    return draw(paint, height=0.22 * max(len(rows), 3) + 0.9, label=f"{x} of each setting: mean and 95% interval")


def _coordinates(values: Sequence[Any], log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Coordinates in [0, 1] of a knob's values, and ticks: numbers by size, others evenly spread, absent ones apart."""
    cells, different = ordered_cells(values)
    numbers = [float(value) for value in different if is_number(value)]
    absent = different[0] is None
    if not is_range(values) or len(numbers) < 2:
        spread = np.linspace(0, 1, len(different)) if len(different) > 1 else np.array([0.5])
        ticks = [(float(x), shown(value) or "not set") for x, value in zip(spread, different, strict=True)]
        return [float(spread[cell]) for cell in cells], ticks
    scale = np.log(numbers) if log else np.array(numbers)
    start = 0.12 if absent else 0.0
    spread = start + (1 - start) * (scale - scale[0]) / (scale[-1] - scale[0])
    ticks = [(start, shown(numbers[0])), (1.0, shown(numbers[-1]))]
    for power in range(-12, 13) if log else ():
        x = start + (1 - start) * (np.log(10.0**power) - scale[0]) / (scale[-1] - scale[0])
        if start + 0.15 < x < 0.85:
            ticks.append((float(x), shown(10.0**power)))
    if absent:
        spread, ticks = np.concatenate([[0.0], spread]), [(0.0, "not set"), *ticks]
    return [float(spread[cell]) for cell in cells], ticks


def _number(name: str) -> str:
    """`trial_003` as `3`; other names as they are."""
    plain = name.removeprefix("trial_").removeprefix("setting_").lstrip("0")
    return plain or "0"
