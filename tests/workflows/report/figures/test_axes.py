"""Pictures by what stands in them: logarithmic axes, ends of intervals, changes of workers, names of points."""

import re
from collections.abc import Sequence

import pytest

from tokenfree.train.sweep.results.compare import MeanInterval
from tokenfree.train.sweep.results.effects import levels
from tokenfree.workflows.report.figures.line_figures import lines
from tokenfree.workflows.report.figures.sweep_figures import effect, ends_within, learning_curves, parallel
from tokenfree.workflows.report.figures.trade_figure import Dot, trade

RATES = [0.0004, 0.0007, 0.0013, 0.0021, 0.0042, 0.0083]


def texts(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg)


@pytest.mark.parametrize("log", [True, False])
def test_a_logarithmic_knob_has_a_logarithmic_axis(log: bool) -> None:
    losses = [3.0, 2.9, 2.8, 2.7, 2.9, 3.2]
    svg = effect("rate", RATES, losses, levels(RATES, losses), y="loss", limits=(2.6, 3.3), log=log)
    assert ({"0.0005", "0.001", "0.002", "0.005"} <= set(texts(svg))) == log
    settings = [(str(n), {"rate": rate}, loss) for n, (rate, loss) in enumerate(zip(RATES, losses, strict=True))]
    found = texts(parallel(settings, ["rate"], y="loss", log={"rate"} if log else ()))
    assert ("0.001" in found) == ("rate (logarithmic)" in found) == log


def test_an_interval_ends_at_the_edge_of_the_picture_and_says_so() -> None:
    assert ends_within(MeanInterval(3.0, 0.5, 2), (2.0, 4.0)) == [(2.5, False), (3.5, False)]
    assert ends_within(MeanInterval(3.0, 1.5, 2), (2.0, 4.0)) == [(2.0, True), (4.0, True)]
    assert ends_within(MeanInterval(3.9, 0.5, 2), (2.0, 4.0)) == [(3.4, False), (4.0, True)]
    assert ends_within(MeanInterval(3.0, None, 1), (2.0, 4.0)) == []


@pytest.mark.parametrize(("ends", "log"), [((100, 10_000), True), ((5_000, 10_000), False), ((10_000,), False)])
def test_curves_of_unequal_length_have_a_logarithmic_axis(ends: Sequence[int], log: bool) -> None:
    curves = [(f"run {end}", [end / 10, end / 2, end], [3.0, 2.0, 1.0]) for end in ends]
    for svg in (
        lines(curves, title="a", x="x", y="y"),
        lines([], points=curves, title="a", x="x", y="y"),
        learning_curves([(name, "finished", xs, ys) for name, xs, ys in curves], best=("", ()), x="", y="", title=""),
    ):
        assert ("4k" not in texts(svg) and {"100", "1k", "10k"} <= set(texts(svg))) == log
    # One curve is as long as the other, whatever is drawn beside it.
    assert "4k" in texts(
        lines([("a", [1, 10_000], [1.0, 2.0])], points=[("b", [1, 10], [1.0, 2.0])], title="", x="", y="")
    )


def test_a_change_is_told_where_it_was() -> None:
    svg = lines([("", [1, 2, 3], [1.0, 2.0, 3.0])], title="a", x="x", y="y", changes=[(2, "2 → 4 workers")])
    assert "2 → 4 workers" in texts(svg)


def test_settings_are_named_and_those_that_were_stopped_are_faint() -> None:
    dots = [
        Dot("2 · full", 100.0, 3.0, on_front=True), Dot("4 · full", 200.0, 3.2, on_front=True),
        Dot("6 · full", 150.0, 3.3), Dot("8 · full", 120.0, 3.35, stopped=True),
        Dot("9 · full", 130.0, 7.0, stopped=True),
    ]  # fmt: skip
    found = texts(trade(dots, title="t", x="x", y="y", names="rate · name", more_is_better=True))
    assert {"2 · full", "4 · full", "6 · full", "names: rate · name"} <= set(found)
    assert not {"8 · full", "9 · full"} & set(found)
    assert "stopped before, above the picture" in found
    assert "stopped before, above the picture" not in texts(
        trade(dots[:-1], title="t", x="x", y="y", names="rate", more_is_better=True)
    )
