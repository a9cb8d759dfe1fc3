"""Draw the figures of the report, as SVG for the page.

Callers draw within `matplotlib.style.context(STYLE)`.
"""

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from tokenfree.train.sweep.results import Level, format_value, ordered_cells
from tokenfree.workflows.report.parts import cut
from tokenfree.workflows.terminal.output import printable

STYLE = "tokenfree.workflows.report.page"  # the file page.mplstyle
INK, FAINT, MUTED = "#1f2933", "#616e7c", "#a3afbb"
SPEED_NAME = "characters per second"
MAX_CELLS = 16  # maximum number of rows or columns of a matrix that shows its numbers
MIN_TRIALS = 3  # with two, the 95% interval is nine times as wide as their distance
_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}  # background of text on lines


def image(figure: Figure, kind: str) -> bytes:
    """Return a figure as an "svg" or "png" file. The same figure gives the same bytes."""
    file = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with warnings.catch_warnings():
        # The browser has more fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(file, format=kind, metadata=metadata)
    return printable(file.getvalue().decode()).encode() if kind == "svg" else file.getvalue()


def inline(figure: Figure, label: str) -> Markup:
    """Return an `<img>` element with the figure embedded and `label` for screen readers."""
    data = base64.b64encode(image(figure, "svg")).decode()
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    tag = '<img alt="{}" width="{}" height="{}" src="data:image/svg+xml;base64,{}">'
    return Markup(tag).format(label, width, height, data)


class Curve(NamedTuple):
    """A line. With `has_marks`, each point has a marker, for lines of few points such as validations."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    has_marks: bool = False


def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    x: str,
    y: str,
    level: tuple[str, float] | None = None,
    marks: tuple[str, Sequence[float]] = ("", ()),
) -> Figure:
    """Draw lines, a dashed reference level (name, y), and marks (name, xs) at the bottom."""
    figure = Figure()
    axes = figure.subplots()
    for line in lines:
        # Paths differ at their end.
        name = line.name if len(line.name) <= 28 else "…" + line.name[-27:]
        if line.has_marks:
            axes.plot(line.xs, line.ys, markeredgecolor="white", label=name)
        else:
            (drawn,) = axes.plot(line.xs, smoothed(line.ys), marker="none", label=name)
            faint = {"color": drawn.get_color(), "alpha": 0.25, "linewidth": 0.8}
            axes.plot(line.xs, line.ys, linestyle="-", marker="none", **faint)
    if level is not None:
        axes.axhline(level[1], color=INK, linestyle=(0, (4, 3)), linewidth=1, label=level[0])
    if marks[1]:
        bottom = axes.get_xaxis_transform()
        axes.plot(marks[1], [0.03] * len(marks[1]), "^", color=INK, transform=bottom, label=marks[0])
    axes.set(title=title, xlabel=x, ylabel=y)
    _scale(axes, [line.xs[-1] for line in lines if len(line.xs)])
    if y == SPEED_NAME:
        _round_numbers(axes.yaxis)
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend()
    return figure


def matrix(
    axes: Axes,
    cells: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    texts: Sequence[Sequence[str]],
) -> None:
    """Draw a matrix, darker the larger the number, with `texts` in the cells unless there are too many."""
    low, high = min(0.0, np.nanmin(cells)), np.nanmax(cells)
    # Vector graphics, unlike imshow.
    axes.pcolormesh(cells, cmap="Blues", vmin=low, vmax=high)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    if max(cells.shape) > MAX_CELLS:
        return
    for (row, column), value in np.ndenumerate(cells):
        colour = "white" if value > (low + high) / 2 else INK
        text = texts[int(row)][int(column)]
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)


def effect(title: str, losses: Sequence[float], levels: Sequence[Level], y: str) -> Figure:
    """Draw each trial as a dot above its value, and the mean of each value with its 95% interval over trials."""
    # Three fit side by side on a wide page.
    figure = Figure(figsize=(3.7, 2.8))
    axes = figure.subplots()
    columns = range(len(levels))
    for column, level in zip(columns, levels, strict=True):
        trial_losses = [losses[index] for index in level.trials]
        axes.plot([column] * len(trial_losses), trial_losses, "o", color=MUTED, markersize=4)
    means = [level.interval.mean for level in levels]
    halves = [
        level.interval.half or 0.0 if level.interval.count >= MIN_TRIALS else np.nan for level in levels
    ]
    axes.errorbar(columns, means, yerr=halves, color="C0", linestyle="none", marker="_", markersize=14)
    labels = [cut(level.label, 16) for level in levels]
    is_long = sum(map(len, labels)) > 32
    axes.set_xticks(columns, labels, rotation=30 if is_long else 0, ha="right" if is_long else "center")
    axes.set_xlim(-0.6, len(levels) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set(title=cut(title, 40), ylabel=y)
    return figure


class Dot(NamedTuple):
    """A setting with its speed and loss. It is `best` if no other setting beats it in both."""

    name: str
    speed: float
    loss: float
    best: bool = False


def speed_against_loss(dots: Sequence[Dot], *, y: str) -> Figure:
    figure = Figure()
    axes = figure.subplots()
    front = sorted((dot for dot in dots if dot.best), key=lambda dot: dot.speed)
    beaten = [dot for dot in dots if not dot.best]
    axes.plot(
        [dot.speed for dot in beaten], [dot.loss for dot in beaten], "o", color=FAINT, label="beaten in both"
    )
    axes.step(
        [dot.speed for dot in front], [dot.loss for dot in front], where="pre", color="C1", linewidth=1,
        linestyle="-", marker="D", label="no other is better in both",
    )  # fmt: skip
    for dot in front:
        place = {"xytext": (5, 6), "textcoords": "offset points"}
        axes.annotate(dot.name, (dot.speed, dot.loss), fontsize=9, bbox=_GROUND, **place)
    axes.margins(x=0.15, y=0.2)
    axes.set(title="Loss against speed", xlabel=SPEED_NAME, ylabel=y)
    _scale(axes, [dot.speed for dot in dots])
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def parallel(
    settings: Sequence[tuple[Mapping[str, Any], float]], names: Mapping[str, str], *, y: str
) -> Figure:
    """Draw each setting (values, loss), best first, as a line across one axis per hyperparameter, coloured by loss.

    The values of an axis are in order and evenly spaced. `names` maps keys to titles of axes.
    """
    figure = Figure(figsize=(max(5.4, 1.5 * len(names) + 1), 3.4))
    axes = figure.subplots()
    losses = np.array([loss for _, loss in settings])
    colours = matplotlib.colormaps["viridis"]
    scale = Normalize(losses.min(), losses.max())
    heights = np.empty((len(names), len(settings)))
    for column, key in enumerate(names):
        cells, different = ordered_cells([values.get(key) for values, _ in settings])
        last = max(len(different) - 1, 1)
        heights[column] = cells / last
        axes.axvline(column, color=FAINT, linewidth=1)
        for cell in sorted({round(position) for position in np.linspace(0, len(different) - 1, 8)}):
            text = cut(format_value(different[cell]) or "not set", 14)
            axes.text(column + 0.03, cell / last, text, va="center", fontsize=9, zorder=4, bbox=_GROUND)
    for index in range(len(settings))[::-1]:
        axes.plot(
            heights[:, index],
            color=colours(scale(losses[index])),
            linestyle="-",
            marker="none",
            linewidth=3 if index == 0 else 1.2,
        )
    axes.set_xticks(range(len(names)), [cut(name, 18) for name in names.values()])
    axes.set_xlim(-0.1, len(names) - 0.5)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.set_title("All settings, the best one thick")
    figure.colorbar(ScalarMappable(scale, colours), ax=axes, label=y)
    return figure


def trials(curves: Sequence[tuple[str, Sequence[float], Sequence[float]]], *, x: str, y: str) -> Figure:
    """Draw the learning curves (state, xs, ys) of all trials, with "best" in colour and a marker for how each ended."""
    figure = Figure()
    axes = figure.subplots()
    ends = {"best": "o", "finished": "o", "stopped": "x", "failed": "P", "running": ">"}
    seen = set()
    for state, xs, ys in sorted(curves, key=lambda curve: curve[0] == "best"):
        form = {"color": "C0", "linewidth": 2.2} if state == "best" else {"color": MUTED, "linewidth": 0.9}
        label = None if state in seen else state
        axes.plot(xs, ys, linestyle="-", marker=ends.get(state, "o"), markevery=[-1], label=label, **form)
        seen.add(state)
    _scale(axes, [xs[-1] for _, xs, _ in curves])
    axes.set(title="Learning curves of all trials", xlabel=x, ylabel=y)
    axes.legend()
    return figure


def smoothed(values: Sequence[float]) -> np.ndarray:
    """Return a centred moving mean over a twentieth of the curve, shorter at the ends, float64 [values]."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def _scale(axes: Axes, values: Sequence[float]) -> None:
    if values and min(values) > 0 and max(values) > 8 * min(values):
        axes.set_xscale("log")
        if max(values) < 100 * min(values):
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    _round_numbers(axes.xaxis)


def _round_numbers(axis: Axis) -> None:
    """Write ticks as `20k`, not as `2e4`, and small numbers unchanged."""
    large = EngFormatter(sep="")
    axis.set_major_formatter(lambda value, _: large(value) if abs(value) >= 1000 else f"{value:g}")
