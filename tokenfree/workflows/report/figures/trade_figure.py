"""Quality against cost: settings that are compared, with their front, and faintly those that were stopped before."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokenfree.workflows.report.figures.drawing import (
    COLOURS,
    FAINT,
    MUTED,
    PAPER,
    are_wide,
    draw,
    label_points,
    log_x,
    plain_numbers,
)

_ROOM = 0.8  # above those compared, for those that were stopped, as a share of the height of the former


@dataclass(frozen=True)
class Dot:
    """A setting: what it costs (`x`) and how good it is (`y`, less is better).

    Attributes:
        name: told beside the dot.
        on_front: no other one that is compared is better in both.
        few: it has fewer seeds than others, and is not compared.
        stopped: it was stopped before it got to where settings are compared; `y` is where it stood then.
    """

    name: str
    x: float
    y: float
    on_front: bool = False
    few: bool = False
    stopped: bool = False


def trade(dots: Sequence[Dot], *, title: str, x: str, y: str, names: str, more_is_better: bool) -> str:
    """Quality `y` against the cost `x` of settings, with the front as stairs.

    Args:
        dots: the settings; one at least is compared.
        title: of the picture.
        x: the name of the axis; `more_is_better` of it, as of speed, or less, as of arithmetic.
        y: the name of the axis.
        names: what the names of the dots are made of.
        more_is_better: see `x`.
    """

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        leading = sorted((dot for dot in dots if dot.on_front), key=lambda dot: dot.x)
        stopped = [dot for dot in dots if dot.stopped]
        beaten = [dot for dot in dots if not (dot.stopped or dot.few or dot.on_front)]
        groups = (  # each over those before it
            ("stopped before: at the loss that it had", "x", MUTED, MUTED, stopped),
            ("fewer seeds: not compared", "v", PAPER, FAINT, [dot for dot in dots if dot.few]),
            ("beaten by another", "o", FAINT, PAPER, beaten),
            ("front: no other is better in both", "D", COLOURS[1], PAPER, leading),
        )
        top = _limit(axes, dots)
        above = [dot.x for dot in stopped if dot.y > top]
        if above:
            axes.scatter(
                above, [top] * len(above), s=26, marker="^", facecolor=PAPER, edgecolor=MUTED, linewidth=1, zorder=3,
                clip_on=False, label="stopped before, above the picture",
            )  # fmt: skip
        for label, marker, face, edge, chosen in groups:
            inside = [dot for dot in chosen if dot.y <= top]
            if chosen:
                axes.scatter(
                    [dot.x for dot in inside], [dot.y for dot in inside], s=22 if chosen is stopped else 38,
                    marker=marker, facecolor=face, edgecolor=None if marker == "x" else edge, linewidth=1, zorder=3,
                    label=label,
                )  # fmt: skip
        axes.step(
            [dot.x for dot in leading], [dot.y for dot in leading], where="pre" if more_is_better else "post",
            color=COLOURS[1], linewidth=1.2, zorder=2,
        )  # fmt: skip
        axes.set(title=title, xlabel=x, ylabel=y)
        if are_wide([dot.x for dot in dots]):
            log_x(axes, [dot.x for dot in dots])
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(
            handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(0, -0.2), fontsize=8, borderaxespad=0,
            title=f"names: {names}", title_fontsize=8, alignment="left",
        )  # fmt: skip
        plain_numbers(axes)
        around = [(dot.x, dot.y) for dot in stopped if dot.y <= top]
        label_points(axes, [(dot.name, dot.x, dot.y) for dot in [*leading, *beaten]], around)

    return draw(paint, height=4.4, label=f"{title}: {y} by {x} of every setting")


def _limit(axes: Axes, dots: Sequence[Dot]) -> float:
    """Set the limits of the loss by the settings that are compared; the upper one."""
    compared = [dot.y for dot in dots if not dot.stopped]
    low, high = min(dot.y for dot in dots), max(compared)
    height = (high - low) or 0.05 * abs(high) or 1.0
    room = _ROOM if any(dot.y > high for dot in dots) else 0.15
    axes.set_ylim(low - 0.15 * height, high + room * height)
    axes.margins(x=0.12)
    return high + room * height
