"""Figures: axes that fit their values, equal bytes for equal values."""

from collections.abc import Iterator

import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure

from tokenfree.train.intervals import MeanInterval
from tokenfree.train.sweep.results import Level
from tokenfree.workflows.report.figures import (
    STYLE,
    Curve,
    Dot,
    curves,
    effect,
    image,
    parallel,
    smoothed,
    speed_against_loss,
)


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with matplotlib.style.context(STYLE):
        yield


def ticks(figure: Figure) -> list[str]:
    figure.draw_without_rendering()
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


@pytest.mark.parametrize(
    ("ends", "scale"), [((100, 10_000), "log"), ((5_000, 10_000), "linear"), ((9_000,), "linear")]
)
def test_curves_of_unequal_length_have_a_logarithmic_axis(ends: tuple[int, ...], scale: str) -> None:
    lines = [Curve(f"run {end}", [end / 10, end / 2, end], [3.0, 2.0, 1.0]) for end in ends]
    figure = curves(lines, title="a", x="x", y="y")
    assert figure.axes[0].get_xscale() == scale
    assert f"{ends[-1] // 10_000 * 10 or 8}k" in ticks(figure)


def test_intervals_are_inside_the_frame_and_two_trials_have_none() -> None:
    levels = [
        Level("2", (0, 1, 2), MeanInterval(3.0, 2.5, 3)),
        Level("4", (3, 4), MeanInterval(3.0, 90.0, 2)),
    ]
    figure = effect("rate", [2.9, 3.1, 3.0, 2.8, 3.2], levels, "loss")
    assert ticks(figure) == ["2", "4"]
    low, high = figure.axes[0].get_ylim()
    assert 0 < low < 0.5
    assert 5.5 < high < 6


def test_a_front_is_named() -> None:
    dots = [Dot("a", 100.0, 3.0, best=True), Dot("b", 150.0, 3.3)]
    axes = speed_against_loss(dots, y="y").axes[0]
    assert [text.get_text() for text in axes.texts] == ["a"]


def test_every_setting_is_a_line_over_all_hyperparameters() -> None:
    settings = [({"rate": rate, "name": "full" if rate > 2 else None}, 3.0 + rate) for rate in (1, 2, 3, 4)]
    axes = parallel(settings, {"rate": "rate", "name": "name"}, y="loss").axes[0]
    assert sum(len(np.asarray(line.get_xdata())) == 2 for line in axes.lines) == 4 + 2  # and two axes
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4", "not set", "full"]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_equal_values_give_equal_bytes(kind: str) -> None:
    made = [
        image(curves([Curve("a $x$ <b>", [1, 2], [3.0, 4.0])], title="t", x="x", y="y"), kind)
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_smoothing_keeps_a_level() -> None:
    assert smoothed([1.0] * 50).tolist() == pytest.approx([1.0] * 50)
    assert smoothed([0.0] * 99 + [1.0])[-1] > 0.2
