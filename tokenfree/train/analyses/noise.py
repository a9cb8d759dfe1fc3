"""How the scores of a fine-tuned model change with noise in its texts: by scheme and share of the characters struck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.train.inference.finetuned import FinetunedModel
from tokenfree.train.intervals import bootstrap_interval
from tokenfree.train.tasks.base import Metrics
from tokenfree.train.tasks.examples.noise import IN_WORDS, Noise, NoiseScheme, paper_rate, reads_words

REPLICATES = 200
STRENGTHS = (0.5, 1.0, 2.0)  # times the share of the characters that the paper strikes
NONE = "none"
SCHEMES: tuple[NoiseScheme, ...] = get_args(NoiseScheme)


def noise_scores(
    model: FinetunedModel,
    name: str,
    data: str | None,
    *,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
    most: int | None = None,
) -> dict[str, Any]:
    """Return the scores on a file of examples, first as they are, then with each scheme at each strength.

    A scheme strikes at most all characters. The noise that the run has for evaluation is not added. Strengths are
    multiples of the share of characters that each scheme strikes in the paper. `most` examples of the file are used,
    evenly spaced.
    """
    rows: list[dict[str, Any]] = []
    clean, count = None, 0
    for scheme, rate in _settings(model, strengths):
        examples = _spaced(model.examples(data, Noise(evaluation=scheme, rate=rate, seed=seed)), most)
        scores, count = Scores.of(model, examples, data), len(examples)
        clean = clean or scores
        rows.append({"scheme": scheme or NONE, "rate": rate or 0.0, **scores.beside(clean)})
    assert clean is not None, "the first is without noise"
    task: Any = model.task
    noise: Noise = task.noise  # else its examples were refused
    scheme = noise.train
    names = list(dict.fromkeys(name for row in rows for name in row))  # types of spans that one row alone may have
    return {
        "analysis": "noise",
        "run": name,
        **model.checkpoint.record(),
        "task": model.task.name,
        "data": data,
        "examples": count,
        "seed": seed,
        "main": clean.metrics.main,
        "trained_with": scheme,
        "trained_rate": None if scheme is None else noise.rate or paper_rate(scheme),
        "rows": [{name: row.get(name) for name in names} for row in rows],
    }


class Scores(NamedTuple):
    """The scores on all examples, and the main one on each of `REPLICATES` draws of as many, with replacement."""

    metrics: Metrics
    loss: float
    draws: np.ndarray  # float64 [replicates]

    @classmethod
    def of(cls, model: FinetunedModel, examples: Sequence[Any], data: str | None) -> Scores:
        """Score a model on examples of a file.

        Raises:
            UserError: they have no labels.
        """
        found = model.evaluate_examples(examples)
        if found.metrics is None:
            raise UserError(f"{data}: the examples have no labels to be compared with; give a file with the answers")
        drawn = np.random.default_rng(0).integers(len(examples), size=(REPLICATES, len(examples))).tolist()
        scores = [
            model.task.scores([examples[one] for one in draw], [found.predictions[one] for one in draw])
            for draw in drawn
        ]
        return cls(found.metrics, found.loss, np.array([each.score for each in scores if each is not None]))

    def beside(self, clean: Scores) -> dict[str, Any]:
        """The numbers of a row: the main score and its change from that without noise, each with its 95% interval by
        bootstrap over the examples (the same draws of both), then the loss and the other scores.
        """
        low, high = bootstrap_interval(self.draws).tolist()
        change_low, change_high = bootstrap_interval(self.draws - clean.draws).tolist()
        others = {name: value for name, value in self.metrics.values.items() if name != self.metrics.main}
        return {
            "score": self.metrics.score,
            "low": low,
            "high": high,
            "change": self.metrics.score - clean.metrics.score,
            "change_low": change_low,
            "change_high": change_high,
            "loss": self.loss,
            **others,
        }


def _settings(model: FinetunedModel, strengths: Sequence[float]) -> Iterator[tuple[NoiseScheme | None, float | None]]:
    """The schemes that go with the model, each with its rates, without noise first."""
    yield None, None
    for scheme in SCHEMES:
        if scheme != IN_WORDS or reads_words(model.recipe.model):
            for rate in dict.fromkeys(
                min(1.0, round(strength * paper_rate(scheme), 6)) for strength in sorted(strengths)
            ):
                yield scheme, rate


def _spaced(examples: Sequence[Any], most: int | None) -> Sequence[Any]:
    """At most so many, evenly spaced."""
    if most is None or most >= len(examples):
        return examples
    return [examples[number * len(examples) // most] for number in range(most)]
