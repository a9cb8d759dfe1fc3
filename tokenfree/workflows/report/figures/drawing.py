"""How pictures are made: matplotlib figures as inline SVG whose text stays text and whose colours follow the page."""

import html
import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours are named by the values that they have on light paper; the page's style sheet has others for the dark.
INK, FAINT, GRID, MUTED, PAPER = "#1f2933", "#616e7c", "#e4e7eb", "#a3afbb", "#fefefe"
COLOURS = ("#0072b2", "#c2500a", "#00785a", "#a04d87", "#8a6500", "#3c5a96")  # of Okabe and Ito's kind, dark enough
RANKS = ("#08306b", "#2171b5", "#5b9fcf", "#93bddd", "#c5d4e3")  # best fifth to worst fifth, by lightness
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 3)), (0, (3, 1.5)))
_NAMES = {
    INK: "ink",
    FAINT: "faint",
    GRID: "line",
    MUTED: "muted",
    PAPER: "paper",
    **{colour: f"c{number}" for number, colour in enumerate(COLOURS, 1)},
    **{colour: f"q{number}" for number, colour in enumerate(RANKS, 1)},
}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tokenfree",
    "text.color": INK,
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
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
}


def draw(paint: Callable[[Figure], None], *, width: float = 5.2, height: float = 3.0, label: str) -> str:
    """The `<svg>` of a figure that `paint` fills, `width` by `height` inches, with `label` for screen readers."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    opening, rest = svg.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    name = html.escape(label, quote=True)
    opening += f' role="img" aria-label="{name}" style="max-width:{width * 96:.0f}px;min-width:{width * 62:.0f}px"'
    return re.sub("|".join(_NAMES), lambda match: f"var(--{_NAMES[match[0]]})", f"{opening}>{rest}")


def drawn(paint: Callable[[Figure], None], kind: str, *, width: float, height: float) -> bytes:
    """A file of a figure that `paint` fills, `width` by `height` inches, on white paper; `kind` is "png" or "svg"."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        file = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(file, format=kind, dpi=150, facecolor="white", metadata=metadata)
    return file.getvalue()


def number_ids(page: str) -> str:
    """The page with the ids inside each picture made its own: matplotlib gives equal ones to equal shapes."""
    counter = itertools.count(1)

    def numbered(svg: re.Match[str]) -> str:
        prefix = f"p{next(counter)}-"
        return re.sub(r'( id="|href="#|url\(#)', lambda match: match[1] + prefix, svg[0])

    return re.sub(r"<svg.*?</svg>", numbered, page, flags=re.DOTALL)


def label_points(
    axes: Axes, points: Sequence[tuple[str, float, float]], around: Sequence[tuple[float, float]] = ()
) -> None:
    """Write each name (name, x, y) beside its point, joined to it by a line where that is some way off.

    It covers neither another name nor any of the points, nor those `around`; what finds no room is left out.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    taken: list[tuple[float, float, float, float]] = []
    for x, y in [*((x, y) for _, x, y in points), *around]:
        px, py = axes.transData.transform((x, y))
        taken.append((px - 4, py - 4, px + 4, py + 4))
    dots = list(taken)
    for name, x, y in points:
        px, py = axes.transData.transform((x, y))
        wide, high = 5.5 * len(name), 11.0
        beside = [(7, 4), (7, -13), (-7 - wide, 4), (-7 - wide, -13), (-wide / 2, 9), (-wide / 2, -19)]
        if any(abs(left + 4 - px) < 20 and 4 < bottom + 4 - py < 20 for left, bottom, _, _ in dots):
            beside.sort(key=lambda place: place[1] > 0)  # below: what stands above it would be taken for it
        apart = ((side, dy) for dy in (20, -30, 34, -44, 48, -58) for side in (9, -9 - wide, -wide / 2))
        for dx, dy in (*beside, *apart):
            box = (px + dx, py + dy, px + dx + wide, py + dy + high)
            inside = axes.bbox.contains(*box[:2]) and axes.bbox.contains(*box[2:])
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
                axes.annotate(
                    name, (x, y), xytext=(dx * 72 / figure.dpi, dy * 72 / figure.dpi + 2),
                    textcoords="offset points", fontsize=8, arrowprops=None if (dx, dy) in beside else line, zorder=5,
                    bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
                )  # fmt: skip
                break


def plain_numbers(axes: Axes, *, x: bool = True, y: bool = True) -> None:
    """Ticks as short numbers: `20k`, not `2e4`."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, ScalarFormatter

    for axis in [axes.xaxis] * x + [axes.yaxis] * y:
        if isinstance(axis.get_major_formatter(), (ScalarFormatter, LogFormatter)):
            axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def are_wide(values: Sequence[float], ratio: float = 8) -> bool:
    """Whether values are positive and span more than the factor `ratio`, so that a straight axis would crowd most."""
    return bool(values) and min(values) > 0 and max(values) > ratio * min(values)


def log_x(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis for these positive values, with ticks that are round numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    ratio = max(values) / min(values)
    if ratio < 100:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio > 5 else (1, 1.5, 2, 3, 4, 5, 7)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """`1.5M`, `20k`, `0.25`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.6g}"


def cut(text: str, most: int) -> str:
    """At most `most` characters, the end replaced by an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
