"""The picture of a confusion matrix."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tokenfree.workflows.report.figures.drawing import INK, PAPER, RANKS, cut, draw

MOST_LABELS = 12  # whose counts can be read


def confusion(counts: np.ndarray, labels: Sequence[str], *, title: str) -> str:
    """A cell for each right label (rows) and label found (columns), int64 [K, K], darker the larger its share of the
    row; each holds its count.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        names = [cut(label, 12) for label in labels]
        for (row, column), share in np.ndenumerate(shares):
            shade = min(int(share * len(RANKS)), len(RANKS) - 1)
            colour = PAPER if not counts[row, column] else RANKS[::-1][shade]
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, linewidth=0))
            dark = shade > 2 and counts[row, column]
            axes.text(
                column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=8,
                color=PAPER if dark else INK,
            )  # fmt: skip
        axes.set_xticks(range(len(labels)), names, rotation=90 if sum(map(len, names)) > 24 else 0)
        axes.set_yticks(range(len(labels)), names)
        axes.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(labels) - 0.5, -0.5), xlabel="found", ylabel="right")
        axes.set_title(title)
        axes.grid(visible=False)

    size = 0.42 * len(labels)
    return draw(paint, width=max(3.4, 1.8 + size), height=max(2.2, 1.6 + size), label=title)
