"""The settings that a sweep tries: what its searcher suggests, without repeats and without what cannot be run."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.slots import Searcher
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import DEFAULT_TRIALS, SweepRecipe
from tokenfree.train.sweep.subjects.base import Subject

CANDIDATES_PER_TRIAL = 50  # a space of which hardly any setting can be run is refused


@dataclass
class Proposer:
    """Says which setting is next, and what the settings passed over suffer from.

    Attributes:
        sweep: whose settings they are.
        subject: what trials train on.
    """

    sweep: SweepRecipe
    subject: Subject
    _problems: dict[str, list[str]] = field(default_factory=dict)  # of settings by their text, found once

    @property
    def searcher(self) -> Searcher:
        """That of the sweep."""
        return self.sweep.searcher

    @functools.cached_property
    def measure(self) -> dict[str, Any]:
        """What decides on what trials are judged by: that of the base, for all trials."""
        return dict(self.subject.measure(self.sweep.recipe({})))

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
            problems = self.problems(values)
            if not problems:
                return values, skipped
            if text not in known:
                skipped.append((values, problems))
        return None, skipped

    def problems(self, values: Values) -> list[str]:
        """Why a setting cannot be run, one line each."""
        text = _text(values)
        if text not in self._problems:
            self._problems[text] = self._find_problems(values)
        return self._problems[text]

    def _candidates(self, history: History) -> Iterator[Values]:
        candidates = self.searcher.candidates(self.sweep, history)
        wanted = self.sweep.trials or DEFAULT_TRIALS
        if self.sweep.trials is None and self.searcher.is_finite():
            yield from candidates
            return
        for _, values in zip(range(CANDIDATES_PER_TRIAL * wanted), candidates, strict=False):
            yield values

    def _find_problems(self, values: Values) -> list[str]:
        try:
            recipe = self.sweep.recipe(values)
            problems = self.subject.problems(recipe, (self.sweep.workers, self.sweep.workers))
            found = self.subject.measure(recipe)
        except UserError as error:
            return [str(error)]
        return problems + [
            f"{key}: other values would change what is validated, so that trials could not be compared"
            for key, value in self.measure.items()
            if found[key] != value
        ]


@dataclass(frozen=True)
class Plan:
    """The settings known before anything starts, and those that cannot be run.

    Attributes:
        num_settings: that the sweep will try; a searcher that learns from the trials chooses the rest of them later.
        settings: those that are known, in the order in which they are tried.
        skipped: how many were passed over, by reason.
        impossible: these, each with its reasons.
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
    whole = sweep.trials is None and proposer.searcher.is_finite()
    wanted = None if whole else sweep.trials or DEFAULT_TRIALS
    foreseen = proposer.searcher.foreseen(wanted or 0)
    history = History(seeds=1, reports=sweep.reports)
    while whole or len(history.proposed) < foreseen:
        values, skipped = proposer.next(history)
        for impossible, reasons in skipped:
            history = history.after({"event": "skip", "values": impossible, "reasons": reasons})
        if values is None:
            break
        history = history.after({"event": "propose", "setting": len(history.proposed), "values": values})
    found = history.proposed
    if not found or len(found) < foreseen:
        reasons = "; ".join(sorted(history.reasons())) or "the space holds no more different settings"
        asked = "" if whole else f"{wanted} are asked for, but "
        raise UserError(f"trials: {asked}only {len(found)} settings can be run ({reasons})")
    return Plan(wanted or len(found), found, history.reasons(), history.skipped)


def _text(values: Values) -> str:
    return json.dumps(values, sort_keys=True)
