"""Figures of the report: matplotlib figures in one style, put into the page as SVG."""

import base64
import functools
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec

import matplotlib
import numpy as np
from cycler import cycler
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from tokenfree.core.errors import printable
from tokenfree.train.sweep.results import Level, MeanInterval, ordered_cells, shown
from tokenfree.workflows.report.parts import cut

INK, FAINT, GRID, MUTED = "#1f2933", "#616e7c", "#e4e7eb", "#a3afbb"
COLOURS = ("#0072b2", "#c2500a", "#00785a", "#a04d87", "#8a6500", "#3c5a96")  # dark enough on white
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3)), (0, (3, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.parse_math": False,  # names of folders may hold dollar signs
    "svg.fonttype": "none",
    "svg.hashsalt": "tokenfree",
    "figure.figsize": (5.4, 3.4),
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=DASHES) + cycler(marker=MARKERS),
    "axes.edgecolor": FAINT,
    "axes.formatter.use_mathtext": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "errorbar.capsize": 3,
}
SPEED_NAME = "characters per second"
MOST_CELLS = 16  # rows and columns of a matrix whose cells hold their numbers
_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}  # behind words on lines
_P = ParamSpec("_P")


def styled(make: Callable[_P, Figure]) -> Callable[_P, Figure]:
    """Decorate a function so that its figure has the style of this module."""

    @functools.wraps(make)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return make(*args, **kwargs)

    return inner


def image(figure: Figure, kind: str) -> bytes:
    """Return a figure as the content of an "svg" or "png" file, the same bytes for the same figure."""
    file = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has more fonts
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)
    return printable(file.getvalue().decode()).encode() if kind == "svg" else file.getvalue()


def inline(figure: Figure, label: str) -> Markup:
    """Return the `<img>` of a figure that needs no other file, with `label` for screen readers."""
    data = base64.b64encode(image(figure, "svg")).decode()
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    tag = '<img alt="{}" width="{}" height="{}" src="data:image/svg+xml;base64,{}">'
    return Markup(tag).format(label, width, height, data)


class Curve(NamedTuple):
    """A line; one of few points, such as validations, has a mark at each."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    has_marks: bool = False


@styled
def curves(
    lines: Sequence[Curve],
    *,
    title: str,
    x: str,
    y: str,
    level: tuple[str, float] | None = None,
    marks: tuple[str, Sequence[float]] = ("", ()),
) -> Figure:
    """Draw lines, a dashed level (name, y) to compare them with, and marks (name, xs) at the bottom.

    The horizontal axis is logarithmic where a line is much longer than another one.
    """
    figure = Figure()
    axes = figure.subplots()
    for line in lines:
        if line.has_marks:
            axes.plot(line.xs, line.ys, markeredgecolor="white", label=cut(line.name, 28))
            continue
        (drawn,) = axes.plot(line.xs, smoothed(line.ys), marker="none", label=cut(line.name, 28))
        faint = {"color": drawn.get_color(), "alpha": 0.25, "linewidth": 0.8}
        axes.plot(line.xs, line.ys, linestyle="-", marker="none", **faint)
    if level is not None:
        axes.axhline(level[1], color=INK, linestyle=(0, (4, 3)), linewidth=1, label=level[0])
    if marks[1]:
        bottom = axes.get_xaxis_transform()
        axes.plot(marks[1], [0.03] * len(marks[1]), "^", color=INK, transform=bottom, label=marks[0])
    axes.set(title=title, xlabel=x, ylabel=y)
    ends = [line.xs[-1] for line in lines if len(line.xs)]
    if are_wide(ends, 4):
        _log(axes, ends)
        axes.set_xlim(left=max(min(ends) / 50, min(line.xs[0] for line in lines if len(line.xs)) / 1.2))
    else:
        axes.locator_params("x", integer=x == "step")
    _round_numbers(axes.xaxis)
    if y == SPEED_NAME:
        _round_numbers(axes.yaxis)
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend()
    return figure


@styled
def bars(rows: Sequence[tuple[str, float]], *, title: str, x: str) -> Figure:
    """Draw horizontal bars, the first on top, each with its number."""
    figure = Figure(figsize=(5.4, 0.26 * max(len(rows), 3) + 0.9))
    axes = figure.subplots()
    drawn = axes.barh([cut(name, 32) for name, _ in rows], [value for _, value in rows], color=COLOURS[0], height=0.7)
    axes.bar_label(drawn, fmt="{:,.0f}", padding=4, fontsize=9)
    axes.set_ylim(max(len(rows), 3) - 0.5, -0.5)  # few bars are no thicker than many
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.2)
    axes.set(title=title, xlabel=x)
    if are_wide([value for _, value in rows], 30):
        _log(axes, [value for _, value in rows])
    _round_numbers(axes.xaxis)
    return figure


@styled
def confusion(counts: np.ndarray, labels: Sequence[str]) -> Figure:
    """Draw `counts` [right label, found label], darker the larger its share of the row."""
    size = 0.42 * len(labels)
    figure = Figure(figsize=(max(3.8, 1.8 + size), max(2.6, 1.6 + size)))
    axes = figure.subplots()
    names = [cut(label, 12) for label in labels]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    matrix(axes, shares, names, names, texts=[[f"{number:,}" for number in row] for row in counts])
    axes.tick_params(axis="x", rotation=90 if sum(map(len, names)) > 24 else 0)
    axes.invert_yaxis()
    axes.set(title="Labels, right and found", xlabel="found", ylabel="right")
    return figure


def matrix(
    axes: Axes, cells: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, texts: Sequence[Sequence[str]]
) -> None:
    """Draw a matrix, darker the larger the number; `texts` stand in the cells where they are few."""
    low, high = min(0.0, np.nanmin(cells)), np.nanmax(cells)
    axes.pcolormesh(cells, cmap="Blues", vmin=low, vmax=high)  # stays vectors, which imshow does not
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    if max(cells.shape) > MOST_CELLS:
        return
    for (row, column), value in np.ndenumerate(cells):
        colour = "white" if value > (low + high) / 2 else INK
        text = texts[int(row)][int(column)]
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)


@styled
def effect(title: str, losses: Sequence[float], levels: Sequence[Level], limits: tuple[float, float], y: str) -> Figure:
    """Draw each trial as a dot above its value, and the mean of each value with its 95% interval.

    A value whose interval is None or does not fit into `limits` has a hollow mark and no interval.
    """
    figure = Figure(figsize=(3.7, 2.8))  # three in a row on a wide page
    axes = figure.subplots()
    for column, level in enumerate(levels):
        own = [losses[index] for index in level.trials]
        axes.plot([column] * len(own), own, "o", color=MUTED, markersize=4)
        mean, half = level.interval.mean, level.interval.half
        if fits(level.interval, limits):
            axes.errorbar(column, mean, yerr=half, color=COLOURS[0], marker="D")
        else:
            axes.plot(column, mean, "D", color=COLOURS[0], markerfacecolor="white")
    labels = [cut(level.label, 16) for level in levels]
    is_long = sum(map(len, labels)) > 32
    axes.set_xticks(range(len(levels)), labels, rotation=30 if is_long else 0, ha="right" if is_long else "center")
    axes.set_xlim(-0.6, len(levels) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(*limits)
    axes.set(title=cut(title, 40), ylabel=y)
    return figure


def fits(interval: MeanInterval, limits: tuple[float, float]) -> bool:
    """Return whether there is an interval and both of its ends are within `limits`."""
    half = interval.half
    return half is not None and limits[0] <= interval.mean - half and interval.mean + half <= limits[1]


@dataclass(frozen=True)
class Dot:
    """A setting by its `cost` and `loss`, drawn `best` if it is on the front and faint if it was `stopped` before."""

    name: str
    cost: float
    loss: float
    best: bool = False
    stopped: bool = False


@styled
def cost_against_loss(dots: Sequence[Dot], *, title: str, x: str, y: str, more_is_better: bool) -> Figure:
    """Draw settings by cost and loss, and the front of those that no other one beats in both as steps.

    Settings that were stopped early do not set the limits: their losses belong to fewer steps.
    """
    figure = Figure()
    axes = figure.subplots()
    front = sorted((dot for dot in dots if dot.best), key=lambda dot: dot.cost)
    groups = (
        ("stopped before", "x", MUTED, [dot for dot in dots if dot.stopped]),
        ("beaten in both", "o", FAINT, [dot for dot in dots if not dot.best and not dot.stopped]),
        ("no other is better in both", "D", COLOURS[1], front),
    )
    for label, marker, colour, group in groups:
        if group:
            axes.plot([dot.cost for dot in group], [dot.loss for dot in group], marker, color=colour, label=label)
    where = "pre" if more_is_better else "post"
    axes.step(
        [dot.cost for dot in front], [dot.loss for dot in front], where=where, color=COLOURS[1], linewidth=1,
        linestyle="-", marker="none",
    )  # fmt: skip
    for dot in front:
        place = {"xytext": (5, 6), "textcoords": "offset points"}
        axes.annotate(dot.name, (dot.cost, dot.loss), fontsize=9, bbox=_GROUND, **place)
    compared = [dot.loss for dot in dots if not dot.stopped]
    margin = 0.2 * (max(compared) - min(compared)) or 0.1
    axes.set_ylim(min(compared) - margin, max(compared) + 2 * margin)
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=x, ylabel=y)
    if are_wide([dot.cost for dot in dots]):
        _log(axes, [dot.cost for dot in dots])
    _round_numbers(axes.xaxis)
    figure.legend(loc="outside lower left", ncols=2)
    return figure


@styled
def parallel(settings: Sequence[tuple[Mapping[str, Any], float]], names: Mapping[str, str], *, y: str) -> Figure:
    """Draw each setting (values, loss), best first, as a line over an axis for each hyperparameter and its colour.

    Values of an axis stand in order and evenly apart. `names` are the titles of the axes by key.
    """
    figure = Figure(figsize=(max(5.4, 1.5 * len(names) + 1), 3.4))
    axes = figure.subplots()
    losses = np.array([loss for _, loss in settings])
    colours = matplotlib.colormaps["viridis"]
    scale = Normalize(losses.min(), losses.max())
    heights = np.empty((len(names), len(settings)))
    for column, key in enumerate(names):
        cells, different = ordered_cells([values.get(key) for values, _ in settings])
        heights[column] = cells / max(len(different) - 1, 1)
        last = len(different) - 1
        for cell in sorted({round(each) for each in np.linspace(0, last, 8)}):
            at = cell / max(last, 1)
            axes.annotate(
                cut(shown(different[cell]) or "not set", 14), (column, at), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=9, zorder=4, bbox=_GROUND,
            )  # fmt: skip
    for index in range(len(settings))[::-1]:
        width = 3 if index == 0 else 1.2
        axes.plot(heights[:, index], color=colours(scale(losses[index])), linestyle="-", marker="none", linewidth=width)
    for column in range(len(names)):
        axes.axvline(column, color=FAINT, linewidth=1)
    axes.set_xticks(range(len(names)), [cut(name, 18) for name in names.values()])
    axes.set_xlim(-0.1, len(names) - 0.5)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    figure.colorbar(ScalarMappable(scale, colours), ax=axes, label=y)
    axes.set_title("All settings, the best one thick")
    return figure


@styled
def trials(curves: Sequence[tuple[str, Sequence[float], Sequence[float]]], *, x: str, y: str) -> Figure:
    """Draw the curves of all trials (state, xs, ys); the state "best" stands out, marks tell how the others ended."""
    figure = Figure()
    axes = figure.subplots()
    ends = {"best": "o", "finished": "o", "stopped": "x", "failed": "P", "running": ">"}
    seen = set()
    for state, xs, ys in sorted(curves, key=lambda curve: curve[0] == "best"):
        is_best = state == "best"
        colour = COLOURS[0] if is_best else MUTED
        axes.plot(
            xs, ys, color=colour, linestyle="-", linewidth=2.2 if is_best else 0.9, marker=ends.get(state, "o"),
            markevery=[-1], label=None if state in seen else state, zorder=3 if is_best else 2,
        )  # fmt: skip
        seen.add(state)
    lengths = [xs[-1] for _, xs, _ in curves]
    if are_wide(lengths):
        _log(axes, lengths)
    _round_numbers(axes.xaxis)
    axes.set(title="Learning curves of all trials", xlabel=x, ylabel=y)
    axes.legend()
    return figure


def are_wide(values: Sequence[float], ratio: float = 8) -> bool:
    """Return whether positive values span more than the factor `ratio`, so that a straight axis would crowd most."""
    return bool(values) and min(values) > 0 and max(values) > ratio * min(values)


def smoothed(values: Sequence[float]) -> np.ndarray:
    """Return a centred mean over a twentieth of the curve, shorter at its ends, float64 [values]."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def _round_numbers(axis: Axis) -> None:
    """Write ticks as `20k`, not as `2e4`, and small ones as they are."""
    large = EngFormatter(sep="")
    axis.set_major_formatter(lambda value, _: large(value) if abs(value) >= 1000 else f"{value:g}")


def _log(axes: Axes, values: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, with ticks at 1, 2 and 5 where these are few."""
    axes.set_xscale("log")
    if max(values) < 100 * min(values):
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())
