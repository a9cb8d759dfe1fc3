"""The pictures of corpora and runs: curves and bars."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from tokenfree.workflows.report.figures.drawing import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    PAPER,
    are_wide,
    cut,
    draw,
    log_x,
    plain_numbers,
)

Curve = tuple[str, Sequence[float], Sequence[float]]  # name, xs, ys
_UNEQUAL = 4  # ratio of lengths of curves from which on a straight axis would crowd the shorter ones


def lines(
    curves: Sequence[Curve],
    *,
    title: str,
    x: str,
    y: str,
    points: Sequence[Curve] = (),
    level: tuple[str, float] | None = None,
    marks: tuple[str, Sequence[float]] = ("", ()),
    changes: Sequence[tuple[float, str]] = (),
    smooth: bool = False,
    from_zero: bool = False,
) -> str:
    """Curves, points joined by lines, a dashed level (name, y), marks (name, xs) along the bottom, and `changes`.

    These are upright lines (x, what changed there).

    The axis is logarithmic where the curves are of very different lengths.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for index, (name, xs, ys) in enumerate(curves):
            colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
            if smooth and len(ys) > 20:
                axes.plot(xs, ys, color=colour, alpha=0.25, linewidth=0.8)
                axes.plot(xs, smoothed(ys), color=colour, linestyle=dash, label=cut(name, 28))
            else:
                axes.plot(xs, ys, color=colour, linestyle=dash, label=cut(name, 28))
        for index, (name, xs, ys) in enumerate(points, start=len(curves) if len(curves) == 1 else 0):
            colour = COLOURS[index % len(COLOURS)]
            marker, dash = MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
            axes.plot(
                xs, ys, color=colour, marker=marker, linestyle=dash, markersize=5, markeredgecolor=PAPER,
                label=cut(name, 28),
            )  # fmt: skip
        if level is not None:
            axes.axhline(level[1], color=INK, linestyle=(0, (4, 3)), linewidth=1)
            axes.annotate(
                level[0], (1, level[1]), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=INK
            )
        if len(marks[1]):
            axes.plot(
                marks[1], [0.02] * len(marks[1]), "^", color=INK, transform=axes.get_xaxis_transform(), label=marks[0]
            )
        axes.set(title=title, xlabel=x, ylabel=y)
        for drawn in (curves, points):
            ends = [xs[-1] for _, xs, _ in drawn if len(xs)]
            if are_wide(ends, _UNEQUAL):
                first = max(min(ends) / 50, min(xs[0] for _, xs, _ in drawn if len(xs)))
                log_x(axes, [first, *ends])
                axes.set_xlim(left=first / 1.2)
        if from_zero:
            axes.set_ylim(bottom=0)
        for number, (at, text) in enumerate(changes):
            axes.axvline(at, color=INK, linestyle=(0, (1, 2)), linewidth=1)
            late = axes.transData.transform((at, 0))[0] > axes.bbox.x0 + 0.6 * axes.bbox.width
            axes.annotate(
                text, (at, 0.98 - 0.07 * (number % 4)), xycoords=axes.get_xaxis_transform(), va="top", fontsize=8,
                ha="right" if late else "left", xytext=(-4 if late else 4, 0), textcoords="offset points",
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.85},
            )  # fmt: skip
        if changes:
            axes.set_ylim(top=axes.get_ylim()[1] * 1.15)
        if len(curves) + len(points) + bool(len(marks[1])) > 1:
            axes.legend(loc="best", fontsize=8)
        plain_numbers(axes)

    return draw(paint, label=f"{title}: {y} by {x}")


def bars(rows: Sequence[tuple[str, float]], *, title: str, x: str, log: bool = False) -> str:
    """Horizontal bars, the first on top, each with its number."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        names, values = [cut(row[0], 32) for row in rows], [row[1] for row in rows]
        ys = np.arange(max(len(rows), 3))[::-1][: len(rows)]  # few bars are no thicker than many
        axes.barh(ys, values, color=COLOURS[0], height=0.7)
        axes.set_yticks(ys, names)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        if log and max(values, default=0) > 30 * min(values, default=1):
            axes.set_xscale("log")
            axes.set_xlim(left=min(values) / 2)
        for y, value in zip(ys, values, strict=True):
            axes.annotate(
                f"{value:,.0f}", (value, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.margins(x=0.18)
        axes.set_ylim(-0.6, max(len(rows), 3) - 0.4)
        axes.set(title=title, xlabel=x)
        plain_numbers(axes, y=False)

    return draw(paint, height=0.24 * max(len(rows), 3) + 0.9, label=f"{title}, in {x}")


def smoothed(values: Sequence[float]) -> np.ndarray:
    """A centred mean over a twentieth of the curve, with shorter windows at the ends: float64, as many as `values`."""
    half = max(1, len(values) // 40)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)
