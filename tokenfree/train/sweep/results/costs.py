"""What trials cost: arithmetic for each character, and measured speed, which equal models share.

A clock is disturbed by whatever else the machine does: two equal models of one sweep were once measured at 6,129 and
3,892 characters a second. Their trials are measurements of one speed, so they are pooled.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tokenfree.train.sweep.results.compare import settings
from tokenfree.train.sweep.results.trial_result import TrialResult, is_number
from tokenfree.train.sweep.space.targets import LOSS, SPEED

_SAME = 1.01  # ratio of sizes of equal models: the targets that a seed draws change the arithmetic by a little
_NO_ARITHMETIC = frozenset({"train.micro_batch", "train.threads"})  # numbers that change speed alone
_LEAST_SETTINGS = 3  # that make a front


@dataclass(frozen=True)
class TrainingCost:
    """What a character costs a model in training.

    Attributes:
        flops: floating point operations for each character read, forward and backward; None where they are not known.
        speed: characters per second over all training steps of all trials of equal models; None where not known.
        num_trials: over which `speed` is pooled.
    """

    flops: float | None
    speed: float | None
    num_trials: int


def costs(trials: Iterable[TrialResult]) -> dict[str, TrainingCost]:
    """The cost of each trial that has reported, by its name; equal models have equal costs."""
    found = {}
    for group in _equal_models([trial for trial in trials if trial.reports]):
        cost = _cost(group)
        found.update(dict.fromkeys((trial.name for trial in group), cost))
    return found


def front_amount(trials: Iterable[TrialResult], unit: str = "step") -> float | None:
    """Where a front is drawn: the largest amount of `unit` that at least three settings got to with all their seeds.

    All settings where there are fewer. Where three finished it is the amount that every finished trial used: with a
    budget in seconds each ends a little after it.
    """
    depths, finished = [], []
    for setting in settings(trials):
        lasts = [(trial.state, _last(trial, unit)) for trial in setting.trials if trial.state != "failed"]
        amounts = [amount for _, amount in lasts if amount is not None]
        if amounts:
            depths.append((len(amounts), min(amounts)))
        finished += [amount for state, amount in lasts if state == "finished" and amount is not None]
    most = max((seeds for seeds, _ in depths), default=0)
    ordered = sorted((depth for seeds, depth in depths if seeds == most), reverse=True)
    if not ordered:
        return None
    return min([*finished, ordered[min(_LEAST_SETTINGS, len(ordered)) - 1]])


def _last(trial: TrialResult, unit: str) -> float | None:
    """The amount at the last report with a loss that is a number."""
    amounts = [report.get(unit) for report in trial.reports if is_number(report.get(LOSS.metric))]
    return next((float(amount) for amount in reversed(amounts) if is_number(amount)), None)


def _equal_models(trials: Iterable[TrialResult]) -> list[list[TrialResult]]:
    """Trials grouped by what a step asks of the machine.

    That is the parameters and the arithmetic of a step, which hold what numbers of the recipe change, and all values
    that are no numbers, such as the name of an optimizer or of an attention pattern.
    """
    groups: list[list[TrialResult]] = []
    for trial in trials:
        for group in groups:
            if _are_equal(trial, group[0]):
                group.append(trial)
                break
        else:
            groups.append([trial])
    return groups


def _are_equal(one: TrialResult, other: TrialResult) -> bool:
    if _words(one) != _words(other):
        return False
    pairs = list(zip(_sizes(one), _sizes(other), strict=False))
    return bool(pairs) and all(max(pair) <= _SAME * min(pair) for pair in pairs)


def _words(trial: TrialResult) -> list[tuple[str, str]]:
    values = sorted(trial.values.items())
    return [(key, str(value)) for key, value in values if key in _NO_ARITHMETIC or not is_number(value)]


def _sizes(trial: TrialResult) -> tuple[float, ...]:
    """Parameters and the arithmetic of a step; nothing where they are not known."""
    flops, steps, parameters = (trial.last.get(name) for name in ("flops", "step", "parameters"))
    if not (is_number(flops) and is_number(steps) and is_number(parameters) and steps):
        return ()
    return parameters, flops / steps


def _cost(group: list[TrialResult]) -> TrainingCost:
    flops = characters = read = seconds = 0.0
    for trial in group:
        last = trial.last
        speed, time = last.get(SPEED.metric), last.get("train_seconds")
        if is_number(speed) and is_number(time) and speed > 0:
            read, seconds = read + speed * time, seconds + time
        if is_number(last.get("flops")) and is_number(last.get("characters")):
            flops, characters = flops + last["flops"], characters + last["characters"]
    return TrainingCost(flops / characters if characters else None, read / seconds if seconds else None, len(group))
