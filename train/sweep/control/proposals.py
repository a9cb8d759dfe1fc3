"""The settings that a sweep tries: what its searcher suggests, without repeats and without what cannot be run."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from preprocess.errors import UserError
from preprocess.manifest import Manifest
from preprocess.settings import to_mapping
from preprocess.vocabulary import Vocabulary
from train.config import PretrainRecipe, check
from train.sweep.config import DEFAULT_TRIALS, SweepRecipe
from train.sweep.history import History
from train.sweep.space import Values

CANDIDATES_PER_TRIAL = 50  # a space of which hardly any setting can be run is refused
_MEASURE = ("objective", "train.length", "train.validation_windows")  # what decides on validation samples and masks


@dataclass
class Proposer:
    """Says which setting is next, and what the settings passed over suffer from."""

    sweep: SweepRecipe
    manifest: Manifest
    vocabulary: Vocabulary | None
    _mistakes: dict[str, list[str]] = field(default_factory=dict)

    @functools.cached_property
    def measure(self) -> dict[str, Any]:
        """What decides on the samples and masks of validation: that of the base, for all trials."""
        base = self.sweep.recipe({})
        return {key: _at(base, key) for key in _MEASURE}

    def next(self, history: History) -> tuple[Values | None, list[tuple[Values, list[str]]]]:
        """The values of the next setting (None: there are no more), and the ones newly found impossible, with reasons.

        A function of the sweep and the history.
        """
        seen = {_text(values) for values in history.proposed}
        known = {_text(values) for values, _ in history.skipped}
        skipped = []
        for values in self._candidates(history):
            text = _text(values)
            if text in seen:
                continue
            seen.add(text)
            mistakes = self.mistakes(values)
            if not mistakes:
                return values, skipped
            if text not in known:
                skipped.append((values, mistakes))
        return None, skipped

    def mistakes(self, values: Values) -> list[str]:
        """Why a setting cannot be run, one line each."""
        text = _text(values)
        if text not in self._mistakes:
            self._mistakes[text] = self._find_mistakes(values)
        return self._mistakes[text]

    def _candidates(self, history: History) -> Iterator[Values]:
        candidates = self.sweep.searcher.candidates(self.sweep, history)
        wanted = self.sweep.trials or DEFAULT_TRIALS
        if self.sweep.trials is None and is_finite(self.sweep):
            yield from candidates
            return
        for _, values in zip(range(CANDIDATES_PER_TRIAL * wanted), candidates, strict=False):
            yield values

    def _find_mistakes(self, values: Values) -> list[str]:
        try:
            recipe = self.sweep.recipe(values)
            workers = (self.sweep.workers, self.sweep.workers)
            mistakes = check(recipe, self.manifest, workers=workers, vocabulary=self.vocabulary)
        except UserError as error:
            return [str(error)]
        return mistakes + [
            f"{key}: other values would change what is validated, so that trials could not be compared"
            for key in _MEASURE
            if _at(recipe, key) != self.measure[key]
        ]


@dataclass(frozen=True)
class Plan:
    """The settings known before anything starts, and those that cannot be run.

    A searcher that learns from the trials chooses the rest of `num_settings` later.
    """

    num_settings: int
    settings: tuple[Values, ...]
    skipped: dict[str, int]
    impossible: tuple[tuple[Values, tuple[str, ...]], ...]


def plan(proposer: Proposer) -> Plan:
    """What the sweep will try, as far as the settings and the data tell.

    Raises:
        UserError: fewer settings can be run than there are to be trials; the reasons are named.
    """
    sweep = proposer.sweep
    whole = sweep.trials is None and is_finite(sweep)
    wanted = None if whole else sweep.trials or DEFAULT_TRIALS
    foreseen = min(wanted or 0, getattr(sweep.searcher, "startup", wanted or 0))
    history = History(settings=wanted or 1, seeds=1, reports=sweep.reports)
    while whole or len(history.trials) < foreseen:
        values, skipped = proposer.next(history)
        for impossible, reasons in skipped:
            history.apply({"event": "skip", "values": impossible, "reasons": reasons})
        if values is None:
            break
        history.apply({"event": "propose", "setting": len(history.trials), "values": values})
    found = [trial.values for trial in history.trials.values()]
    if not found or len(found) < foreseen:
        reasons = "; ".join(sorted(history.reasons())) or "the space holds no more different settings"
        asked = "" if whole else f"{wanted} are asked for, but "
        raise UserError(f"trials: {asked}only {len(found)} settings can be run ({reasons})")
    impossible = tuple(history.skipped)
    return Plan(wanted or len(found), tuple(found), history.reasons(), impossible)


def is_finite(sweep: SweepRecipe) -> bool:
    """Whether the searcher goes through a list that ends."""
    return sweep.searcher.name == "grid"


def _at(recipe: PretrainRecipe, key: str) -> Any:
    value: Any = to_mapping(recipe)
    for name in key.split("."):
        value = value[name]
    return value


def _text(values: Values) -> str:
    return json.dumps(values, sort_keys=True)
