"""The picture of each analysis: correlations with their intervals, cells of heads, bars of scripts, scores by noise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokenfree.workflows.report.figures.drawing import COLOURS, DASHES, INK, MARKERS

MOST_BARS = 20
_MOST_CELLS = 16  # heads or layers, up to which cells hold their number

Paint = Callable[[Figure], None]


def picture(found: Mapping[str, Any]) -> tuple[Paint, float, float]:
    """What paints the figure of an analysis, and the width and height of the figure in inches."""
    if found["analysis"] == "similarity":
        return _similarity(found["rows"])
    if found["analysis"] == "collisions":
        return _collisions(found["rows"])
    if found["analysis"] == "noise":
        return _noise(found)
    names = {"distance": "mean distance, units"}
    if found["analysis"] == "ranks":
        names = {
            "rank_content": "rank of the content's logits",
            "rank": "rank of all logits",
            "toeplitz": "Toeplitz share of positions",
        }
    else:
        names["entropy"] = "entropy, bits"
    return _heads(found["rows"], names)


def _similarity(rows: Sequence[Mapping[str, Any]]) -> tuple[Paint, float, float]:
    languages = list(dict.fromkeys(row["language"] for row in rows))
    measures = list(dict.fromkeys(row["measure"] for row in rows))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(languages), sharey=True, squeeze=False)
        for axes, language in zip(grid[0], languages, strict=True):
            for number, kind in enumerate(("related", "random", "both")):
                own = [row for row in rows if (row["language"], row["kind"]) == (language, kind)]
                known = [row for row in own if row["spearman"] is not None]
                heights = [len(measures) - measures.index(row["measure"]) + 0.2 * (1 - number) for row in known]
                means = np.array([row["spearman"] for row in known])
                ends = [[row[end] for row in known] for end in ("low", "high")]
                axes.errorbar(
                    means, heights, xerr=[means - ends[0], ends[1] - means], color=COLOURS[number],
                    marker=MARKERS[number], markersize=4, capsize=2, linestyle="none", label=kind,
                )  # fmt: skip
            axes.set_yticks(range(len(measures), 0, -1), [measure.replace("_", "-") for measure in measures])
            axes.set(title=language, xlabel="Spearman's correlation, 95% interval")
        grid[0][0].legend(loc="best", fontsize=8)

    return paint, 1.4 + 3.6 * len(languages), 3.4


def _heads(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> tuple[Paint, float, float]:
    known = {name: title for name, title in names.items() if any(row[name] is not None for row in rows)}
    num_layers = max((row["layer"] for row in rows), default=1)
    num_heads = max((row["head"] for row in rows), default=1)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(known), squeeze=False)
        for axes, (name, title) in zip(grid[0], known.items(), strict=True):
            cells = np.full((num_layers, num_heads), np.nan)
            for row in rows:
                if row[name] is not None:
                    cells[row["layer"] - 1, row["head"] - 1] = row[name]
            _cells(axes, cells)
            axes.set(title=title, xlabel="head", ylabel="layer")

    return paint, 0.8 + max(0.42 * num_heads, 2.6) * len(known), 1.2 + max(0.3 * num_layers, 1.4)


def _cells(axes: Axes, cells: np.ndarray) -> None:
    """A cell for each head, the lowest layer below, darker the larger its number."""
    axes.imshow(cells, cmap="Blues", aspect="auto", origin="lower", vmin=min(0.0, np.nanmin(cells)))
    axes.set_xticks(range(cells.shape[1]), [str(head + 1) for head in range(cells.shape[1])])
    axes.set_yticks(range(cells.shape[0]), [str(layer + 1) for layer in range(cells.shape[0])])
    axes.grid(visible=False)
    if max(cells.shape) > _MOST_CELLS:
        return
    middle = (min(0.0, np.nanmin(cells)) + np.nanmax(cells)) / 2
    for (layer, head), value in np.ndenumerate(cells):
        if not np.isnan(value):
            digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
            colour = "white" if value > middle else INK
            axes.text(head, layer, f"{value:.{digits}f}", ha="center", va="center", fontsize=7, color=colour)


def _collisions(rows: Sequence[Mapping[str, Any]]) -> tuple[Paint, float, float]:
    scripts = [row for row in rows if row["group"] == "script"][:MOST_BARS]
    shown = [row for row in rows if row["group"] == "all"] + scripts

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        heights = np.arange(len(shown))[::-1]
        for shift, name, label, colour in (
            (0.18, "hash", "a bucket in one hash", COLOURS[0]),
            (-0.18, "all", "all buckets", COLOURS[1]),
        ):
            axes.barh(heights + shift, [row[name] for row in shown], height=0.34, color=colour, label=label)
        axes.axvline(shown[0]["hash_expected"], color=INK, linestyle=(0, (3, 2)), label="one hash, uniform")
        names = ["all", *(row["name"] or "no letters" for row in scripts)]
        axes.set_yticks(heights, [f"{name} ({row['characters']:,})" for name, row in zip(names, shown, strict=True)])
        axes.grid(visible=False, axis="y")
        axes.set(title="Characters that share with another one", xlabel="share of the characters", xlim=(0, 1))
        axes.legend(loc="best", fontsize=8)

    return paint, 5.6, 1.2 + 0.3 * len(shown)


def _noise(found: Mapping[str, Any]) -> tuple[Paint, float, float]:
    clean, *rows = found["rows"]
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axhline(clean["score"], color=INK, linestyle=(0, (3, 2)), linewidth=1, label="without noise")
        for number, scheme in enumerate(schemes):
            own = [row for row in rows if row["scheme"] == scheme]
            scores = np.array([row["score"] for row in own])
            ends = np.array([[row[end] for row in own] for end in ("low", "high")])
            axes.errorbar(
                [row["rate"] for row in own], scores, yerr=np.abs(ends - scores), color=COLOURS[number],
                marker=MARKERS[number], linestyle=DASHES[number], markersize=4, elinewidth=0.8, capsize=2,
                label=scheme.replace("_", " "),
            )  # fmt: skip
        axes.set(title=found["run"], xlabel="share of the characters struck", xlim=(0, 1.03))
        axes.set_ylabel(f"{found['main'].replace('_', ' ')}, 95% interval")
        figure.legend(loc="outside right upper", fontsize=8)

    return paint, 6.6, 3.4
