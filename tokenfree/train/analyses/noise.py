"""Scores of a fine-tuned model with noise in its texts, by noise scheme and share of changed characters."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.train.inference.finetuned import FinetunedModel
from tokenfree.train.intervals import bootstrap_interval
from tokenfree.train.tasks.base import Metrics
from tokenfree.train.tasks.examples.noise import IN_WORDS, RATES, Noise, NoiseScheme, reads_words

REPLICATES = 200
STRENGTHS = (0.5, 1.0, 2.0)  # multiples of the paper's share of changed characters
NONE = "none"


def noise_scores(
    model: FinetunedModel,
    name: str,
    data: str | None,
    *,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
    max_examples: int | None = None,
) -> dict[str, Any]:
    """Return the scores on a file of examples, first without noise, then with each scheme at each strength.

    Strengths are multiples of the share of characters that each scheme changes in the paper; the share is at
    most 1. The run's own evaluation noise is not added. At most `max_examples` examples of the file are used,
    evenly spaced.
    """
    rows: list[dict[str, Any]] = []
    clean, count = None, 0
    for scheme, rate in _settings(model, strengths):
        examples = _evenly_spaced(
            model.examples(data, Noise(evaluation=scheme, rate=rate, seed=seed)), max_examples
        )
        scores, count = Scores.of(model, examples, data), len(examples)
        clean = clean or scores
        rows.append({"scheme": scheme or NONE, "rate": rate or 0.0, **scores.beside(clean)})
    assert clean is not None, "the first is without noise"
    task: Any = model.task
    # `examples` rejects tasks without it.
    noise: Noise = task.noise
    scheme = noise.train
    # A type of span may occur in one row only.
    names = list(dict.fromkeys(name for row in rows for name in row))
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
        "trained_rate": None if scheme is None else noise.rate or RATES[scheme],
        "rows": [{name: row.get(name) for name in names} for row in rows],
    }


class Scores(NamedTuple):
    """The scores on all examples, and the main score on each of `REPLICATES` bootstrap samples."""

    metrics: Metrics
    loss: float
    draws: np.ndarray  # float64 [replicates]

    @classmethod
    def of(cls, model: FinetunedModel, examples: Sequence[Any], data: str | None) -> "Scores":
        """Score a model on examples of a file. Raises UserError if the examples have no labels."""
        evaluation = model.evaluate_examples(examples)
        if evaluation.metrics is None:
            raise UserError(
                f"{data}: the examples have no labels to be compared with; give a file with the answers"
            )
        drawn = np.random.default_rng(0).integers(len(examples), size=(REPLICATES, len(examples))).tolist()
        scores = [
            model.task.scores([examples[one] for one in draw], [evaluation.predictions[one] for one in draw])
            for draw in drawn
        ]
        return cls(
            evaluation.metrics,
            evaluation.loss,
            np.array([metrics.score for metrics in scores if metrics is not None]),
        )

    def beside(self, clean: "Scores") -> dict[str, Any]:
        """Return the numbers of a row: the main score, its change from `clean`, the loss and the other scores.

        The score and its change have 95% intervals by bootstrap over the examples, with the same samples for
        both.
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


def _settings(
    model: FinetunedModel, strengths: Sequence[float]
) -> Iterator[tuple[NoiseScheme | None, float | None]]:
    yield None, None
    for scheme, share in RATES.items():
        if scheme != IN_WORDS or reads_words(model.recipe.model):
            rates = (min(1.0, round(strength * share, 6)) for strength in sorted(strengths))
            for rate in dict.fromkeys(rates):
                yield scheme, rate


def _evenly_spaced(examples: Sequence[Any], max_examples: int | None) -> Sequence[Any]:
    if max_examples is None or max_examples >= len(examples):
        return examples
    return [examples[number * len(examples) // max_examples] for number in range(max_examples)]
