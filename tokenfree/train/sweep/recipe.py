"""The recipe of a sweep: knobs over dotted keys, searcher, scheduler, budget, targets; and the recipe of each trial."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.core.errors import Nearest, UserError
from tokenfree.core.settings import Slot, build, draft, merge, nest, part, settings, to_mapping, value_at
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, Recipe

DEFAULT_TRIALS = 8
TASK = "task"  # a key that only recipes of fine-tuning have
_LISTS = ("choice", "grid", "integer")  # kinds of knobs whose values can be listed
_NOT_OFFERED = ("hyperband", "pbt")  # schedulers of earlier versions
VARIANT = "variant"  # a knob of this name chooses among whole recipes instead of setting a key
Values = dict[str, Any]
Fixed = Callable[[str, Values], Any]  # (dotted key, values so far) -> what the recipe has there
Objective = Literal["validation_loss", "characters_per_second", "dev_score", "dev_error"]


@dataclass(frozen=True)
class Target:
    """A metric of the reports, and whether less or more of it is better (`min` or `max`)."""

    metric: str = "validation_loss"
    mode: str = "min"

    def cost(self, value: float) -> float:
        """Return a number of which less is always better, in the metric's own unit."""
        return value if self.mode == "min" else -value


LOSS = Target()  # in nats for each target, on held-out windows
SPEED = Target("characters_per_second", "max")  # in training steps, without validations
SCORE = Target("dev_score", "max")  # of a task: the main score on the development set, of the best checkpoint so far
ERROR = Target("dev_error")  # the same of a task whose main score is an error


def objectives(names: Sequence[str]) -> list[Target]:
    """Return the targets of these names: speed and scores are to be high, everything else low."""
    high = {target.metric: target for target in (SPEED, SCORE)}
    return [high.get(name, Target(name)) for name in names]


def quality(names: Sequence[str]) -> Target:
    """Return what says how good a trial of a sweep with these objectives is, whatever it costs."""
    return next((target for target in objectives(names) if target in (SCORE, ERROR)), LOSS)


@settings
class Knob:
    """The values that one dotted key may take: exactly one of the kinds, and when the key is set at all.

    `grid` differs from `choice` in that every one of its values is tried with every one of the other grids.

    Attributes:
        choice: values to choose among.
        grid: values, each of which is tried with every one of the other grids.
        integer: the lowest and the highest whole number.
        uniform: the lowest and the highest number.
        log_uniform: the same, above 0, where the logarithms are spread evenly.
        when: other keys, each with the value or the list of values that it must have; otherwise the knob is left out.
    """

    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    grid: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    integer: tuple[int, int] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    when: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = (self.choice, self.grid, self.integer, self.uniform, self.log_uniform)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of choice, grid, integer, uniform, log_uniform")
        for ends in (self.integer, self.uniform, self.log_uniform):
            if ends is not None and ends[0] > ends[1]:
                raise ValueError(f"the range {list(ends)} is empty; give the lower end first")

    @property
    def listed(self) -> tuple[Any, ...] | None:
        """All values if they can be listed."""
        if self.integer is not None:
            return tuple(range(self.integer[0], self.integer[1] + 1))
        return self.choice or self.grid

    def value(self, quantile: float) -> Any:
        """Return the value at `quantile` in [0, 1) of the knob's distribution, floats to four significant digits."""
        if self.listed is not None:
            return self.listed[int(quantile * len(self.listed))]
        if self.uniform is not None:
            low, high = self.uniform
            return rounded(low + quantile * (high - low))
        assert self.log_uniform is not None
        low, high = map(math.log, self.log_uniform)
        return rounded(math.exp(low + quantile * (high - low)))


Space = Mapping[str, Knob]


def ordered(space: Space) -> list[str]:
    """Return the keys, each after those that its condition names.

    Raises:
        UserError: conditions go round in a circle.
    """
    needed = {key: sorted(set(space[key].when) & set(space)) for key in sorted(space)}
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise UserError(f"space: the conditions (when) of {circle} need each other; leave one out") from None


def active(space: Space, drawn: Values, fixed: Fixed) -> Values:
    """Return `drawn` without the keys whose condition does not hold.

    Raises:
        UserError: see `ordered`.
    """
    values: Values = {}
    for key in ordered(space):
        if all(_holds(other, wanted, space, values, fixed) for other, wanted in space[key].when.items()):
            values[key] = drawn[key]
    return {key: values[key] for key in sorted(values)}


def products(space: Space) -> Iterator[Values]:
    """Yield every combination of the values of knobs that can be listed; the last key changes fastest."""
    keys = sorted(space)
    for combination in itertools.product(*(space[key].listed or () for key in keys)):
        yield dict(zip(keys, combination, strict=True))


def _holds(other: str, wanted: Any, space: Space, values: Values, fixed: Fixed) -> bool:
    if other in space and other not in values:
        return False
    found = values[other] if other in space else fixed(other, values)
    return found in wanted if isinstance(wanted, list) else found == wanted


def rounded(value: float) -> float:
    """Round to four significant digits, so that values read well and are the same on every machine."""
    return float(f"{value:.4g}")


@settings
class Even:
    """Settings that cover the space evenly: the points of a scrambled Sobol sequence, a dimension for each knob.

    Sobol 1967, scrambled as in Owen 1998, "Scrambling Sobol' and Niederreiter-Xing Points". The first n settings are
    spread well whatever n is, so more trials only add settings. Every combination of grids is tried in turn.

    Attributes:
        name: `even`.
    """

    name: Literal["even"] = "even"


@settings
class Random:
    """Each knob's value drawn from its own distribution, independently.

    Bergstra and Bengio 2012, "Random Search for Hyper-Parameter Optimization", JMLR 13.

    Attributes:
        name: `random`.
    """

    name: Literal["random"] = "random"


@settings
class Grid:
    """Every combination of the values of all knobs, in the order of their lists.

    Attributes:
        name: `grid`.
    """

    name: Literal["grid"] = "grid"


@settings
class Tpe:
    """Settings that a model of the trials so far expects to be good: Optuna's tree-structured Parzen estimator.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4; for two objectives Ozaki et al.
    2022, "Multiobjective Tree-Structured Parzen Estimator", JAIR 73. Trials that still train count as bad ones (the
    constant liar of Ginsbourger et al. 2010), so that settings side by side differ.

    Attributes:
        name: `tpe`.
        startup: number of evenly spread settings before the model is asked.
    """

    name: Literal["tpe"] = "tpe"
    startup: Annotated[int, Field(ge=1)] = 8


@settings
class Asha:
    """Ray Tune's asynchronous successive halving: at the rungs, the worse trials stop.

    Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", arXiv 1810.05934. A trial goes on if it is
    in the best 1/`reduction` of those that came to the rung before it.

    Attributes:
        name: `asha`.
        grace: number of the report that is the first rung; r of the paper.
        reduction: ratio of the reports of one rung to those of the rung before; eta of the paper.
    """

    name: Literal["asha"] = "asha"
    grace: Annotated[int, Field(ge=1)] = 1
    reduction: Annotated[int, Field(ge=2)] = 3


@settings
class MedianStopping:
    """Ray Tune's median stopping rule: a trial stops whose best value is worse than the median of the others' means.

    Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2.

    Attributes:
        name: `median_stopping`.
        grace: number of the report that is the first at which a trial may stop.
        min_trials: number of other trials that must have come as far.
    """

    name: Literal["median_stopping"] = "median_stopping"
    grace: Annotated[int, Field(ge=1)] = 1
    min_trials: Annotated[int, Field(ge=1)] = 3


@settings
class NoScheduler:
    """Every trial uses its whole budget, whatever it reports.

    Attributes:
        name: `none`.
    """

    name: Literal["none"] = "none"


Scheduler = Asha | MedianStopping | NoScheduler


def expected_reports(scheduler: Scheduler | None, reports: int, done: int = 0) -> float:
    """Return how many more reports a trial makes on average that has made `done` of `reports` and was not stopped.

    ASHA stops all but one in `reduction` trials at each rung. For median stopping every second trial is taken to stop
    at its first chance.
    """
    if isinstance(scheduler, MedianStopping) and done < scheduler.grace < reports:
        return (scheduler.grace + reports) / 2 - done
    expected, share = 0.0, 1.0
    if isinstance(scheduler, Asha):
        rung = scheduler.grace
        while rung < reports:
            if rung > done:
                expected, share, done = expected + share * (rung - done), share / scheduler.reduction, rung
            rung *= scheduler.reduction
    return expected + share * (reports - done)


@dataclass(frozen=True)
class _Choice(Slot):
    """A slot whose variants are classes of this module."""

    variants: tuple[type, ...] = ()

    @property
    def title(self) -> str:
        return self.package.rpartition(".")[2].removesuffix("s")

    def names(self) -> list[str]:
        return sorted(found.name for found in self.variants)  # pyright: ignore[reportAttributeAccessIssue]

    def config_class(self, name: str) -> type:
        for found in self.variants:
            if found.name == name:  # pyright: ignore[reportAttributeAccessIssue]
                return found
        if name in _NOT_OFFERED:
            raise ValueError(f"{name} is not offered: Ray Tune cannot resume it after a kill. Take asha")
        raise ValueError(f"there is no {self.title} {name!r}{Nearest(str(name), self.names()).hint}")


SEARCHER = _Choice("tokenfree.train.sweep.searchers", "even", variants=(Even, Grid, Random, Tpe))
SCHEDULER = _Choice("tokenfree.train.sweep.schedulers", "asha", variants=(Asha, MedianStopping, NoScheduler))


@settings
class Budget:
    """What a trial may use: exactly one of the units. Characters and arithmetic are counted over all workers.

    Attributes:
        steps: optimizer steps.
        characters: of text, without special ones and padding.
        flops: floating-point operations of forward and backward passes.
        seconds: in training steps, validations left out.
    """

    steps: Annotated[int, Field(ge=1)] | None = None
    characters: Annotated[float, Field(gt=0)] | None = None
    flops: Annotated[float, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        if sum(amount is not None for amount in (self.steps, self.characters, self.flops, self.seconds)) != 1:
            raise ValueError("give exactly one of steps, characters, flops, seconds (and null for that of the recipe)")

    @property
    def unit(self) -> str:
        """The field of a trial's reports that counts what is used up."""
        if self.steps is not None:
            return "step"
        return "characters" if self.characters is not None else "flops" if self.flops is not None else "train_seconds"

    @property
    def amount(self) -> float:
        return self.steps or self.characters or self.flops or self.seconds or 0

    def num_steps(self, cost: float) -> int:
        """Return the steps that the budget is worth, at least 1, where a step uses `cost` of the unit."""
        return max(1, round(self.amount / cost))


@settings
class SweepRecipe:
    """A search over dotted keys of a recipe for pretraining or for fine-tuning.

    `base` is that recipe (a name or file on disk, a mapping here), `overrides` is laid over it for every trial and for
    the best recipe. A knob named `variant` chooses among other recipes, which take the place of `base` (names or files
    on disk; here `variants` holds their mappings).

    Attributes:
        base: the recipe that trials change: a name, a file or the mapping itself.
        variants: the mappings of the recipes that a knob named `variant` chooses among; filled in by their names.
        overrides: keys laid over the recipe of every trial, and over the best one.
        space: the knobs, by dotted keys of the recipe.
        searcher: which settings are tried, in which order.
        scheduler: which trials go on after a report.
        objectives: what is to be good: one or two. Of fine-tuning the first is dev_score, the main score on the
            development set, or dev_error where that is an error.
        trials: settings to try, at least 1; null: 8, or a whole grid.
        seeds: trials of each setting, with `train.seed`, `train.seed` + 1 and so on.
        budget: of one trial.
        reports: validations of a trial, evenly over its budget.
        workers: of a trial; more than one are workers of Ray Train.
        gpus_per_worker: null: 1 where the cluster has any.
        concurrent: the most trials side by side; null: as many as have room.
        seed: of the search.
    """

    base: dict[str, Any]
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    space: Annotated[dict[str, Knob], Field(min_length=1)]
    searcher: Annotated[Any, SEARCHER] = part(SEARCHER)
    scheduler: Annotated[Any, SCHEDULER] = part(SCHEDULER)
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=2)] = ("validation_loss",)
    trials: Annotated[int, Field(ge=1)] | None = None
    seeds: Annotated[int, Field(ge=1)] = 1
    budget: Budget = Budget(steps=100)
    reports: Annotated[int, Field(ge=1)] = 5
    workers: Annotated[int, Field(ge=1)] = 1
    gpus_per_worker: Annotated[float, Field(ge=0)] | None = None
    concurrent: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def recipe_class(self) -> type[Recipe]:
        return class_of(self.base)

    @property
    def quality(self) -> Target:
        """What says how good a trial is, whatever it costs."""
        return quality(self.objectives)

    @property
    def target(self) -> Target:
        """What settings are ranked by: the first objective."""
        return objectives(self.objectives)[0]

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recipe's mapping with `values` (dotted key -> value) laid over base and overrides."""
        base = self.variants.get(values[VARIANT], {}) if VARIANT in values else self.base
        mapping = merge(base, self.overrides)
        dotted = ((key, json.dumps(value)) for key, value in values.items() if key != VARIANT)
        return merge(mapping, nest(dotted))

    def recipe(self, values: Mapping[str, Any], seed: int = 0) -> Recipe:
        """Return the recipe of the trial with these values and the seed numbered `seed`.

        Its steps are the budget's where that counts steps, and otherwise found when the trial begins.

        Raises:
            UserError: these values make no recipe.
        """
        recipe = build(self.recipe_class, self.mapping(values), source=f"trial {dict(values)}")
        train: dict[str, Any] = {"seed": recipe.train.seed + seed}
        if self.budget.steps is not None:
            train["steps"] = self.budget.steps
        mapping = merge(self.mapping(values), {"train": train})
        return build(self.recipe_class, mapping, source=f"trial {dict(values)}")

    def best_recipe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resolved mapping of the recipe with these values and the base's own number of steps.

        Raises:
            UserError: these values make no recipe.
        """
        return to_mapping(build(self.recipe_class, self.mapping(values), source=f"trial {dict(values)}"))

    def fixed(self, key: str, values: Values) -> Any:
        """Return what the recipe with these values has at a dotted key; None if it has no such key.

        Raises:
            UserError: these values make no recipe.
        """
        return value_at(self.best_recipe(values), key)


def class_of(recipe: Mapping[str, Any]) -> type[Recipe]:
    """Return the class of a recipe with this mapping: one with a task is fine-tuned."""
    return FinetuneRecipe if TASK in recipe else PretrainRecipe


def check_space(sweep: SweepRecipe) -> None:
    """Refuse a space whose keys are no keys of the recipe, and settings of the search that do not fit together.

    Raises:
        UserError: naming all keys, with the nearest known ones.
    """
    problems = space_problems(sweep)
    if problems:
        raise UserError(problems=problems)


def space_problems(sweep: SweepRecipe) -> list[str]:
    """Return what is wrong with the recipes, the hyperparameters and the search of a sweep, a line each."""
    problems = [
        *_problems_of_order(sweep.space),
        *_problems_of_variants(sweep),
        *_problems_of_recipes(sweep),
        *_problems_of_kinds(sweep),
        *_problems_of_objectives(sweep),
        *(problem for key in sweep.space for problem in _problems_of_knob(sweep, key)),
        *_problems_of_grid(sweep),
    ]
    return list(dict.fromkeys(problems))


def _problems_of_order(space: Mapping[str, Knob]) -> Iterator[str]:
    try:
        ordered(space)
    except UserError as error:
        yield str(error)


def _problems_of_variants(sweep: SweepRecipe) -> Iterator[str]:
    if VARIANT in sweep.space:
        names = sweep.space[VARIANT].listed or ()
        unknown = [str(name) for name in names if name not in sweep.variants]
        if unknown or not names:
            yield f"space: {VARIANT}: {', '.join(unknown) or 'a range'}: give names of recipes to choose among"


def _problems_of_recipes(sweep: SweepRecipe) -> Iterator[str]:
    """Check the recipes that trials change; a base that variants replace is none of them."""
    bases = {f"variant {name}": mapping for name, mapping in sweep.variants.items()} or {"base": sweep.base}
    for name, mapping in bases.items():
        for problem in draft(class_of(mapping), merge(mapping, sweep.overrides)).problems:
            yield f"{name}{' with overrides' if sweep.overrides else ''}: {problem}"


def _problems_of_kinds(sweep: SweepRecipe) -> Iterator[str]:
    """Refuse recipes of several kinds or tasks, and hyperparameters of a task that the sweep itself sets."""
    kind = _kind(sweep.base)
    for name, mapping in sweep.variants.items():
        if _kind(mapping) != kind:
            yield f"variant {name}: a recipe of {_kind(mapping)}, where the base is one of {kind}; give one kind"
    for key, remedy in (("train.seed", "give a number of seeds"), ("train.steps", "give budget.steps")):
        if TASK in sweep.base and key in sweep.space:
            yield f"space: {key}: the sweep sets it for each trial; {remedy}"


def _problems_of_grid(sweep: SweepRecipe) -> Iterator[str]:
    for key, knob in sweep.space.items() if sweep.searcher.name == "grid" else ():
        if knob.listed is None:
            yield f"space: {key}: a grid needs a list of values; give it as choice, or take another searcher"


def _kind(recipe: Mapping[str, Any]) -> str:
    """Return `pretraining`, or the name of the task."""
    if TASK not in recipe:
        return "pretraining"
    task = recipe[TASK]
    return str(task.get("name") if isinstance(task, Mapping) else task)


def _problems_of_objectives(sweep: SweepRecipe) -> Iterator[str]:
    """Refuse a sweep of a task that is not judged by its score, and one of pretraining that is."""
    scores = {SCORE.metric, ERROR.metric}
    if TASK not in sweep.base:
        if scores & {*sweep.objectives}:
            yield "objectives: dev_score and dev_error are of fine-tuning; pretraining is judged by validation_loss"
        return
    task = draft(FinetuneRecipe, merge(sweep.base, sweep.overrides)).settings
    wanted = ERROR.metric if task is not None and task.task.lower_is_better else SCORE.metric
    if sweep.objectives[0] != wanted or (scores - {wanted}) & {*sweep.objectives}:
        yield f"objectives: this task is judged by {wanted}; give that as the first"


def _problems_of_knob(sweep: SweepRecipe, key: str) -> Iterator[str]:
    """Refuse a key that is none of the recipe, or has other values there, and such a one of its condition."""
    knob, values = sweep.space[key], {}
    if VARIANT in sweep.space and key != VARIANT:
        values[VARIANT] = sweep.space[VARIANT].value(0.0)
    recipe = draft(sweep.recipe_class, sweep.mapping(values))
    for other, wanted in knob.when.items():
        if other in sweep.space:
            values[other] = wanted[0] if isinstance(wanted, list) else wanted
        elif not recipe.problems and value_at(to_mapping(recipe.settings), other) is None:
            yield f"space: {key}: when: {other} is no key of the recipe and none of the space"
    if key == VARIANT:  # its recipes are checked by themselves
        return
    try:
        found = draft(sweep.recipe_class, sweep.mapping({**values, key: knob.value(0.0)})).problems
    except UserError as error:
        found = (str(error),)
    yield from (f"space: {key}: {problem}" for problem in found if problem not in recipe.problems)


def with_task_defaults(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a sweep, with the defaults of a task if its base is a recipe of fine-tuning.

    A trial of a task then is the run that `tokenfree finetune` would make of its setting: as many steps, validated as
    often, none stopped early. All settings are tried where they can be listed.
    """
    base, space = mapping.get("base"), mapping.get("space")
    if not isinstance(base, Mapping) or TASK not in base:
        return dict(mapping)
    recipe = draft(FinetuneRecipe, merge(base, mapping.get("overrides") or {}))
    if recipe.settings is None:
        return dict(mapping)  # its problems are reported when the sweep is built
    train, lower = recipe.settings.train, recipe.settings.task.lower_is_better
    steps = value_at(mapping, "budget.steps", train.steps)
    defaults: dict[str, Any] = {
        "objectives": [(ERROR if lower else SCORE).metric],
        "budget": {"steps": train.steps},
        "reports": math.ceil(steps / train.validate_every_steps) if isinstance(steps, int) else 1,
        "scheduler": "none",
    }
    knobs = space.values() if isinstance(space, Mapping) else ()
    if all(isinstance(knob, Mapping) and any(kind in knob for kind in _LISTS) for knob in knobs):
        defaults["searcher"] = "grid"
    return {**defaults, **mapping}
