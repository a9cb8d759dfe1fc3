"""The pictures of the report, drawn with matplotlib as inline SVG whose text stays text."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#9f6b53")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "tokenfree",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def draw(paint: Callable[[Figure], None], *, width: float = 5.2, height: float = 3.0, label: str = "") -> str:
    """The `<svg>` of a figure that `paint` fills, `width` by `height` inches, with `label` for screen readers."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"(<svg[^>]*?) width=\"[^\"]*\"", r"\1", re.sub(r"(<svg[^>]*?) height=\"[^\"]*\"", r"\1", svg, count=1)
    )
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}" style="max-width:{width * 96:.0f}px"', 1)


def lines(
    curves: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    title: str,
    x: str,
    y: str,
    points: Sequence[tuple[str, Sequence[float], Sequence[float]]] = (),
    level: tuple[str, float] | None = None,
    smooth: bool = False,
    log_y: bool = False,
) -> str:
    """Curves (name, xs, ys), points of the same colour order, and a dashed level."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for index, (name, xs, ys) in enumerate(curves):
            colour = COLOURS[index % len(COLOURS)]
            if smooth and len(ys) > 20:
                axes.plot(xs, ys, color=colour, alpha=0.25, linewidth=0.8)
                axes.plot(xs, _smoothed(ys), color=colour, label=name)
            else:
                axes.plot(xs, ys, color=colour, label=name)
        for index, (name, xs, ys) in enumerate(points):
            colour = COLOURS[(index + 1 if len(curves) == 1 else index) % len(COLOURS)]
            axes.plot(xs, ys, "o-", markersize=4, color=colour, label=name, markeredgecolor="white")
        if level is not None:
            axes.axhline(level[1], color=INK, linestyle=(0, (4, 3)), linewidth=1)
            axes.annotate(
                level[0], (1, level[1]), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=INK
            )
        if log_y:
            axes.set_yscale("log")
        axes.set(title=title, xlabel=x, ylabel=y)
        if len(curves) + len(points) > 1:
            axes.legend(loc="best", fontsize=8)
        _plain_numbers(axes)

    return draw(paint, label=title)


def bars(rows: Sequence[tuple[str, float]], *, title: str, x: str, log: bool = False) -> str:
    """Horizontal bars, the first on top, each with its number."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        names, values = [row[0] for row in rows], [row[1] for row in rows]
        places = np.arange(max(len(rows), 3))[::-1][: len(rows)]  # few bars are no thicker than many
        axes.barh(places, values, color=COLOURS[0], height=0.7)
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        if log and max(values, default=0) > 30 * min(values, default=1):
            axes.set_xscale("log")
            axes.set_xlim(left=min(values) / 2)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:,.0f}", (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.margins(x=0.18)
        axes.set_ylim(-0.6, max(len(rows), 3) - 0.4)
        axes.set(title=title, xlabel=x)
        _plain_numbers(axes, x_only=True)

    return draw(paint, height=0.24 * max(len(rows), 3) + 0.9, label=title)


def pareto(trials: Sequence[Mapping[str, Any]]) -> str:
    """Held-out loss against speed; the line joins the trials that no other beats in both."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for state, colour, marker in (("finished", COLOURS[0], "o"), ("stopped", "#b6c2cd", "o")):
            chosen = [trial for trial in trials if trial["state"] == state]
            xs = [trial["characters_per_second"] for trial in chosen]
            ys = [trial["validation_loss"] for trial in chosen]
            note = "finished" if state == "finished" else "stopped early (fewer steps)"
            axes.scatter(xs, ys, s=36, color=colour, marker=marker, edgecolor="white", label=note, zorder=3)
        frontier = _frontier([trial for trial in trials if trial["state"] == "finished"])
        axes.plot(
            [trial["characters_per_second"] for trial in frontier],
            [trial["validation_loss"] for trial in frontier],
            color=COLOURS[1],
            zorder=2,
            label="best trade",
        )
        for trial in frontier:
            place = (trial["characters_per_second"], trial["validation_loss"])
            name = str(trial["trial"]).removeprefix("trial_")
            axes.annotate(name, place, xytext=(5, 7), textcoords="offset points", fontsize=8)
        axes.set(title="Quality against speed", xlabel="characters per second", ylabel="held-out loss (nats)")
        axes.margins(0.12)
        axes.legend(loc="best", fontsize=8)
        _plain_numbers(axes)

    return draw(paint, label="Held-out loss against characters per second of every trial")


def learning_curves(curves: Sequence[tuple[str, Sequence[float], Sequence[float]]], *, best: str) -> str:
    """Held-out loss by step of every trial (name, steps, losses), the best one drawn over the others."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for name, xs, ys in sorted(curves, key=lambda curve: curve[0] == best):
            chosen = name == best
            axes.plot(
                xs,
                ys,
                color=COLOURS[0] if chosen else "#b6c2cd",
                label=name if chosen else None,
                linewidth=2 if chosen else 1,
            )
            axes.plot(xs[-1:], ys[-1:], "o", color=COLOURS[0] if chosen else "#b6c2cd", markersize=4)
        axes.set(title="Learning curves", xlabel="step", ylabel="held-out loss (nats)")
        if best:
            axes.legend(loc="best", fontsize=8)
        _plain_numbers(axes)

    return draw(paint, label="Held-out loss by step of every trial")


def effects(trials: Sequence[Mapping[str, Any]], knobs: Sequence[str]) -> str:
    """One small picture a knob: its value against the held-out loss of the trials."""

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(knobs), sharey=True, squeeze=False)[0]
        for axes, knob in zip(grid, knobs, strict=True):
            for state, colour in (("stopped", "#b6c2cd"), ("finished", COLOURS[0])):
                chosen = [trial for trial in trials if trial["state"] == state]
                _scatter(
                    axes, [trial[knob] for trial in chosen], [trial["validation_loss"] for trial in chosen], colour
                )
            axes.set(xlabel=knob.removeprefix("model."))
            axes.margins(0.12)
            _scale_knob(axes, [trial[knob] for trial in trials])
            _plain_numbers(axes)
        grid[0].set(ylabel="held-out loss (nats)", title="Effect of each knob")

    return draw(paint, width=max(5.2, 2.6 * len(knobs)), height=2.8, label="Held-out loss by the value of each knob")


def _scale_knob(axes: Axes, values: Sequence[Any]) -> None:
    """A logarithmic axis for values that span it, and a tick at each of a few values."""
    if not all(isinstance(value, float) for value in values):
        return
    if values and min(values) > 0 and max(values) > 8 * min(values):
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    if len(set(values)) <= 6:
        axes.set_xticks(sorted(set(values)))
        axes.tick_params(axis="x", labelsize=8)


def _scatter(axes: Axes, xs: Sequence[Any], ys: Sequence[float], colour: str) -> None:
    values = xs if all(isinstance(value, float) for value in xs) else [str(value) for value in xs]
    axes.scatter(values, ys, s=30, color=colour, edgecolor="white", zorder=3)


def _frontier(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The trials with the lowest loss among all that are at least as fast, fastest last."""
    chosen: list[Mapping[str, Any]] = []
    for trial in sorted(trials, key=lambda trial: (-trial["characters_per_second"], trial["validation_loss"])):
        if not chosen or trial["validation_loss"] < chosen[-1]["validation_loss"]:
            chosen.append(trial)
    return chosen[::-1]


def _smoothed(values: Sequence[float]) -> np.ndarray:
    """A centred mean over a twentieth of the curve, with shorter windows at the ends."""
    half = max(1, len(values) // 40)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def _plain_numbers(axes: Axes, *, x_only: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, LogFormatter, ScalarFormatter

    for axis in (axes.xaxis,) if x_only else (axes.xaxis, axes.yaxis):
        if isinstance(axis.get_major_formatter(), (ScalarFormatter, LogFormatter)):
            axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.6g}"
