"""What the demo says at its end."""

from collections.abc import Callable

import pytest

from tokenfree.train.inference.predictor import Guess
from tokenfree.workflows.terminal.results import context_line
from tokenfree.workflows.work import demo

FOUND = {"margin": 0.6, "margin_low": 0.55, "margin_high": 0.65, "probe": 1.2}


def test_a_model_below_the_best_guess_uses_its_context() -> None:
    line = context_line(FOUND)
    assert line is not None
    assert line.startswith(
        "The model uses context: its loss on hidden targets is 0.60 nats (95% interval 0.55 to 0.65)"
    )
    assert line.endswith("1.20 nats higher when the context is hidden or replaced.")


def test_an_interval_that_holds_zero_shows_nothing() -> None:
    line = context_line({**FOUND, "margin_low": -0.01, "probe": -0.001})
    assert line is not None
    assert "Its loss is 0.00 nats higher when" in line
    assert line.startswith("The model is not yet better than the best guess without context")


def test_a_margin_and_its_interval_have_one_sign() -> None:
    line = context_line({"margin": -0.1, "margin_low": -0.7, "margin_high": 0.5, "probe": 0.2})
    assert line is not None
    assert "without context: 0.10 nats (95% interval -0.50 to 0.70) above. Its loss is" in line


def test_one_window_has_no_interval_and_no_verdict() -> None:
    line = context_line({"margin": 0.4, "probe": 0.2})
    assert line is not None
    assert line.startswith(
        "One window does not show whether the model uses context: its loss is 0.40 nats below"
    )


def test_right_predictions_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = dict(demo.SENTENCES)

    def fake(run: str) -> Callable[..., list[list[Guess]]]:
        def predictor(sentence: str, top: int) -> list[list[Guess]]:
            right = sentence != demo.SENTENCES[0][0]
            return [[Guess(answers[sentence] if right else "no", 0.5), Guess("other", 0.1)][:top]]

        return predictor

    monkeypatch.setattr(demo, "load_predictor", fake)
    marks = [line[0] for line in demo.prediction_lines("run")]
    assert marks == ["\N{BALLOT X}", *["\N{CHECK MARK}"] * (len(demo.SENTENCES) - 1)]


def test_nothing_is_said_without_baselines() -> None:
    assert context_line({"step": 3}) is None
