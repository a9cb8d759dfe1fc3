"""The recipe of a sweep (search space, searcher, scheduler, budget and objectives) and the recipes of its trials."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.core import own_code
from tokenfree.core.errors import SettingsError, UserError, first_line
from tokenfree.core.settings import (
    OPERATIONAL,
    Positive,
    Slot,
    build,
    draft,
    merge,
    part,
    set_value,
    settings,
    value_at,
)
from tokenfree.core.settings_errors import nearest_hint
from tokenfree.core.settings_values import is_custom, to_mapping
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, Recipe

DEFAULT_TRIALS = 8
# Only recipes of fine-tuning have this key.
TASK = "task"
_LISTS = ("choice", "grid", "integer")  # kinds of hyperparameters whose values can be listed
VARIANT = "variant"  # a hyperparameter of this name chooses among whole recipes instead of setting a key
Values = dict[str, Any]
Fixed = Callable[[str, Values], Any]  # (dotted key, values so far) -> the recipe's value of that key
Objective = Literal["validation_loss", "characters_per_second", "dev_score", "dev_error"]


@dataclass(frozen=True)
class Metric:
    """A metric of the reports, and whether it is minimized or maximized (`min` or `max`)."""

    metric: str = "validation_loss"
    mode: str = "min"

    def cost(self, value: float) -> float:
        """Return the value with the sign that makes less always better, in the metric's own unit."""
        return value if self.mode == "min" else -value


LOSS = Metric()  # in nats per target, on held-out windows
SPEED = Metric("characters_per_second", "max")  # in training steps, without validations
# Main score of a task on the development set, of the best checkpoint so far.
SCORE = Metric("dev_score", "max")
ERROR = Metric("dev_error")  # the same for a task whose main score is an error


def objectives(names: Sequence[str]) -> list[Metric]:
    """Return the targets of these names. Speed and scores are maximized, everything else is minimized."""
    high = {target.metric: target for target in (SPEED, SCORE)}
    return [high.get(name, Metric(name)) for name in names]


def quality(names: Sequence[str]) -> Metric:
    """Return the target that measures a trial's quality, regardless of its cost, in a sweep with these objectives."""
    return next((target for target in objectives(names) if target in (SCORE, ERROR)), LOSS)


_PARTS = 200  # a rounded number differs by at most this part of its range


@settings
class Hyperparameter:
    """Values of the hyperparameter at one dotted key, of exactly one kind, and the condition for setting the key.

    Attributes:
        choice: values to choose from.
        grid: values, each of which is tried with every combination of the other grids, unlike those of
            `choice`.
        integer: lowest and highest integer.
        uniform: lowest and highest number.
        log_uniform: lowest and highest number, both above 0, with a uniform distribution of the logarithm.
        when: other keys, each with the value or the list of values that it must have; otherwise the key is
            not set.
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
            if ends is not None and ends[1] - ends[0] == math.inf:
                raise ValueError(f"the range {list(ends)} is too wide for a float")

    @property
    def listed(self) -> Sequence[Any] | None:
        """All values, if they can be listed.

        A range of integers takes no memory, and may be too long for `len`.
        """
        if self.integer is not None:
            return range(self.integer[0], self.integer[1] + 1)
        return self.choice or self.grid

    @property
    def num_listed(self) -> int:
        return len(self.listed or ()) if self.integer is None else self.integer[1] - self.integer[0] + 1

    def value(self, quantile: float) -> Any:
        """Return the value at `quantile` in [0, 1) of the distribution. Floats are `rounded`."""
        if self.listed is not None:
            return self.listed[min(int(quantile * self.num_listed), self.num_listed - 1)]
        if self.uniform is not None:
            low, high = self.uniform
            return self.rounded(low + quantile * (high - low))
        assert self.log_uniform is not None
        low, high = map(math.log, self.log_uniform)
        return self.rounded(math.exp(low + quantile * (high - low)))

    def rounded(self, value: float) -> float:
        """Round to four significant digits, or to more where the range is narrow.

        The result lies in the range. Values are then readable, and the same on every machine.
        """
        low, high = self.uniform or self.log_uniform or (value, value)
        value = min(max(value, low), high)
        numbers = (float(f"{value:.{digits}g}") for digits in range(4, 18))
        return next(n for n in numbers if low <= n <= high and _PARTS * abs(n - value) <= high - low)


Space = Mapping[str, Hyperparameter]


def ordered(space: Space) -> list[str]:
    """Return the keys so that each follows those that its condition names.

    Raises UserError if they form a cycle.
    """
    needed = {key: sorted(set(space[key].when) & set(space)) for key in sorted(space)}
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise UserError(f"space: the conditions (when) of {circle} need each other; leave one out") from None


def active(space: Space, drawn: Values, fixed: Fixed) -> Values:
    """Return `drawn` without the keys whose condition does not hold.

    Raises UserError if conditions form a cycle.
    """
    values: Values = {}
    for key in ordered(space):
        if all(
            _holds(other, condition, space, values, fixed) for other, condition in space[key].when.items()
        ):
            values[key] = drawn[key]
    return {key: values[key] for key in sorted(values)}


def num_combinations(space: Space) -> int:
    return math.prod(hyperparameter.num_listed for hyperparameter in space.values())


def combination(space: Space, number: int) -> Values:
    """Return a combination of values that can be listed, counted from 0. The last key changes fastest."""
    values: Values = {}
    for key in sorted(space, reverse=True):
        number, place = divmod(number, space[key].num_listed)
        values[key] = (space[key].listed or ())[place]
    return values


def _holds(other: str, condition: Any, space: Space, values: Values, fixed: Fixed) -> bool:
    if other in space and other not in values:
        return False
    value = values[other] if other in space else fixed(other, values)
    return value in condition if isinstance(condition, list) else value == condition


@settings
class Even:
    """Settings that cover the search space evenly: a scrambled Sobol sequence with a dimension per hyperparameter.

    Sobol 1967, scrambled as in Owen 1998, "Scrambling Sobol' and Niederreiter-Xing Points". The first n
    settings are spread well for every n, so more trials only add settings. Every combination of grids is
    tried in turn.

    Attributes:
        name: `even`.
    """

    name: Literal["even"] = "even"


@settings
class Random:
    """Settings whose hyperparameters are drawn independently, each from its own distribution.

    Bergstra and Bengio 2012, "Random Search for Hyper-Parameter Optimization", JMLR 13.

    Attributes:
        name: `random`.
    """

    name: Literal["random"] = "random"


@settings
class Grid:
    """Every combination of the values of all hyperparameters, in the order of their lists.

    Attributes:
        name: `grid`.
    """

    name: Literal["grid"] = "grid"


@settings
class Tpe:
    """Settings that a model of the previous trials expects to be good: Optuna's tree-structured Parzen estimator.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization", section 4; for two objectives Ozaki
    et al. 2022, "Multiobjective Tree-Structured Parzen Estimator", JAIR 73. Running trials count as bad ones,
    so that concurrent settings differ (the constant liar of Ginsbourger et al. 2010).

    Attributes:
        name: `tpe`.
        startup: number of evenly spread settings before the model suggests any.
    """

    name: Literal["tpe"] = "tpe"
    startup: Annotated[int, Field(ge=1)] = 8


@settings
class Asha:
    """Ray Tune's asynchronous successive halving, which stops the worse trials at each rung.

    Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", arXiv 1810.05934. A trial
    continues if it is in the best 1/`reduction` of the trials that have reached the rung so far.

    Attributes:
        name: `asha`.
        grace: number of the report at the first rung; r of the paper.
        reduction: ratio of the reports at a rung to those at the previous one; eta of the paper.
    """

    name: Literal["asha"] = "asha"
    grace: Annotated[int, Field(ge=1)] = 1
    reduction: Annotated[int, Field(ge=2)] = 3


@settings
class NoScheduler:
    """No early stopping: every trial uses its whole budget.

    Attributes:
        name: `none`.
    """

    name: Literal["none"] = "none"


# Names of Ray Tune's schedulers. Any other is named as MODULE.CLASS.
RAY_SCHEDULERS = {
    "hyperband": "ray.tune.schedulers.HyperBandScheduler",
    "median": "ray.tune.schedulers.MedianStoppingRule",
}


# What a scheduler keeps after SIGKILL, by its name. Other schedulers start without their state.
KEPT = {
    "asha": "all rungs",
    "hyperband": "nothing: the trials that have not ended begin new brackets",
    "median": "nothing: trials are compared with the reports since then",
    "none": "all that it needs",
}


@settings
class RayScheduler:
    """A scheduler of Ray Tune, or a custom one as MODULE.CLASS, with the options of its class.

    `hyperband` halves brackets of trials that wait for each other (Li et al. 2018, JMLR 18); `median` stops a
    trial that is worse than the median of the others (Golovin et al. 2017, "Google Vizier").

    Attributes:
        name: `hyperband`, `median` or MODULE.CLASS. Only classes outside `ray.tune` need --trust-code.
        options: keyword arguments of the class; in a recipe they may stand beside `name`.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, **defaults: Any) -> Any:
        """Return the scheduler, with those `defaults` that its class accepts.

        Raises UserError if it cannot be built.
        """
        path = RAY_SCHEDULERS.get(self.name, self.name)
        if "Population" in path or path.endswith(".PB2"):
            raise UserError(f"{self.name}: changes settings during training, which sweeps do not support")
        with own_code.trusting(
            path.startswith("ray.tune.") or own_code.is_trusted(), f"scheduler {self.name}"
        ):
            scheduler = own_code.load(path)
        accepted = inspect.signature(scheduler).parameters
        options = {name: value for name, value in defaults.items() if name in accepted} | self.options
        try:
            return scheduler(**options)
        except (TypeError, ValueError, AssertionError) as error:
            raise UserError(f"{self.name}: {first_line(error)}. Give options that {path} accepts") from error


@dataclass(frozen=True)
class _Choice(Slot):
    """A slot whose variants are classes of this module, or names of classes of Ray. `package` is its title alone."""

    variants: tuple[type, ...] = ()
    of_ray: type | None = None

    def names(self) -> list[str]:
        names = [variant.name for variant in self.variants]  # pyright: ignore[reportAttributeAccessIssue]
        return sorted([*names, *(RAY_SCHEDULERS if self.of_ray else ())])

    def config_class(self, name: str) -> type:
        for variant in self.variants:
            if variant.name == name:  # pyright: ignore[reportAttributeAccessIssue]
                return variant
        if self.of_ray is not None and (name in RAY_SCHEDULERS or is_custom(name)):
            return self.of_ray
        raise ValueError(f"there is no {self.title} {name!r}{nearest_hint(str(name), self.names())}")

    def _validate(self, value: Any) -> Any:
        if isinstance(value, Mapping) and self.config_class(value.get("name", self.default)) is self.of_ray:
            options = {key: option for key, option in value.items() if key not in ("name", "options")}
            value = {"name": value["name"], "options": {**value.get("options", {}), **options}}
        return super()._validate(value)


SEARCHER = _Choice("searcher", "even", variants=(Even, Grid, Random, Tpe))
SCHEDULER = _Choice("scheduler", "asha", variants=(Asha, NoScheduler), of_ray=RayScheduler)


# Fields of a trial's reports, by the key of the budget that they use up.
UNITS = {"steps": "step", "seconds": "train_seconds", "characters": "characters", "flops": "flops"}


@settings
class Budget:
    """Budget of a trial in exactly one of the units.

    Attributes:
        steps: number of optimizer steps.
        seconds: seconds in training steps, without validations.
        characters: characters of text, without padding.
        flops: floating-point operations of the training steps, by formula.
    """

    steps: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    characters: Annotated[float, Field(gt=0)] | None = None
    flops: Annotated[float, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, key) is not None for key in UNITS) != 1:
            raise ValueError(f"give exactly one of {', '.join(UNITS)} (and null for that of the recipe)")

    @property
    def key(self) -> str:
        return next(key for key in UNITS if getattr(self, key) is not None)

    @property
    def unit(self) -> str:
        """Field of a trial's reports that counts what is used up."""
        return UNITS[self.key]

    @property
    def amount(self) -> float:
        return getattr(self, self.key)


@settings
class SweepRecipe:
    """A search over dotted keys of a recipe for pretraining or fine-tuning.

    `overrides` are merged into `base` for every trial and for the best recipe. A hyperparameter named
    `variant` chooses among other recipes that replace `base`. On disk, `base` and the variants may be names
    or files; here they are mappings.

    Attributes:
        base: the recipe that trials change: a name, a file or the mapping itself.
        variants: mappings of the recipes that a hyperparameter named `variant` chooses from; filled in from
            their names.
        overrides: keys that override those of the base in the recipe of every trial and in the best one.
        space: the search space: hyperparameters by dotted keys of the recipe.
        searcher: which settings are tried, in which order.
        scheduler: which trials continue after a report.
        objectives: one or two metrics to optimize. For fine-tuning the first is dev_score, the main score on
            the development set, or dev_error if that score is an error.
        trials: number of settings to try, at least 1; null: 8, or all if there are fewer or for a whole grid.
        seeds: number of trials per setting, with `train.seed`, `train.seed` + 1 and so on.
        budget: budget of one trial.
        reports: number of validations per trial, spaced evenly over its budget.
        gpus_per_worker: number of GPUs per trial; null: 1 if the cluster has any.
        concurrent: maximum number of concurrent trials; null: as many as fit.
        seed: seed of the search.
    """

    base: dict[str, Any]
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    space: Annotated[dict[str, Hyperparameter], Field(min_length=1)]
    searcher: Annotated[Any, SEARCHER] = part(SEARCHER)
    scheduler: Annotated[Any, SCHEDULER] = part(SCHEDULER)
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=2)] = ("validation_loss",)
    trials: Annotated[int, Field(ge=1)] | None = None
    seeds: Annotated[int, Field(ge=1)] = 1
    budget: Budget = Budget(steps=100)
    reports: Annotated[int, Field(ge=1)] = 5
    gpus_per_worker: Annotated[float, Field(ge=0)] | None = None
    concurrent: Annotated[Positive | None, OPERATIONAL] = None
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def recipe_class(self) -> type[Recipe]:
        return class_of(self.base)

    @property
    def quality(self) -> Metric:
        return quality(self.objectives)

    @property
    def target(self) -> Metric:
        """Target that settings are ranked by: the first objective."""
        return objectives(self.objectives)[0]

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recipe's mapping with `values` (dotted key -> value) merged over base and overrides."""
        base = self.variants.get(values[VARIANT], {}) if VARIANT in values else self.base
        of_trial: dict[str, Any] = {}
        for key, value in values.items():
            if key != VARIANT:
                set_value(of_trial, key, value)
        return merge(merge(base, self.overrides), of_trial)

    def recipe(self, values: Mapping[str, Any], seed: int = 0) -> Recipe:
        """Return the recipe of a trial by values and seed number. Raises UserError if it is invalid.

        A budget in steps sets its number of steps. With another one that number is computed when the trial
        starts.
        """
        recipe = build(self.recipe_class, self.mapping(values), source=f"trial {dict(values)}")
        steps = self.budget.steps or recipe.train.steps
        train: Any = replace(recipe.train, seed=recipe.train.seed + seed, steps=steps)
        return replace(recipe, train=train)

    def best_recipe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping with these values and the base's steps. Raises UserError if it is invalid."""
        return to_mapping(build(self.recipe_class, self.mapping(values), source=f"trial {dict(values)}"))

    def fixed(self, key: str, values: Values) -> Any:
        """Return the value of a key in the recipe with these values, or None.

        Raises UserError if they are invalid.
        """
        return value_at(self.best_recipe(values), key)


def class_of(recipe: Mapping[str, Any]) -> type[Recipe]:
    """Return the class of a recipe with this mapping. A recipe with a task is one of fine-tuning."""
    return FinetuneRecipe if TASK in recipe else PretrainRecipe


def check_space(sweep: SweepRecipe) -> None:
    """Raise UserError, listing all problems, unless the search space fits the recipe and the search."""
    problems = space_problems(sweep)
    if problems:
        raise SettingsError(problems=problems)


def space_problems(sweep: SweepRecipe) -> list[str]:
    """Return the problems of the recipes, the hyperparameters and the search of a sweep, a line each."""
    problems = []
    try:
        ordered(sweep.space)
    except UserError as error:
        problems.append(str(error))
    problems += [
        *_problems_of_variants(sweep),
        *_problems_of_recipes(sweep),
        *_problems_of_kinds(sweep),
        *_problems_of_objectives(sweep),
        *_problems_of_scheduler(sweep),
        *(problem for key in sweep.space for problem in _problems_of_hyperparameter(sweep, key)),
    ]
    return list(dict.fromkeys(problems))


def _problems_of_variants(sweep: SweepRecipe) -> Iterator[str]:
    if VARIANT in sweep.space:
        names = sweep.space[VARIANT].choice or sweep.space[VARIANT].grid or ()
        unknown = [str(name) for name in names if name not in sweep.variants]
        if unknown or not names:
            yield f"space: {VARIANT}: {', '.join(unknown) or 'a range'}: give names of recipes to choose among"


def _problems_of_recipes(sweep: SweepRecipe) -> Iterator[str]:
    """Check the recipes that trials change. A base that variants replace is not checked."""
    bases = {f"variant {name}": mapping for name, mapping in sweep.variants.items()} or {"base": sweep.base}
    for name, mapping in bases.items():
        for problem in draft(class_of(mapping), merge(mapping, sweep.overrides)).problems:
            yield f"{name}{' with overrides' if sweep.overrides else ''}: {problem}"


def _problems_of_kinds(sweep: SweepRecipe) -> Iterator[str]:
    kind = _kind(sweep.base)
    for name, mapping in sweep.variants.items():
        if _kind(mapping) != kind:
            yield f"variant {name}: a recipe of {_kind(mapping)}, where the base is one of {kind}; give one kind"
    for key, action in (("train.seed", "give a number of seeds"), ("train.steps", "give budget.steps")):
        if TASK in sweep.base and key in sweep.space:
            yield f"space: {key}: the sweep sets it for each trial; {action}"


def _kind(recipe: Mapping[str, Any]) -> str:
    if TASK not in recipe:
        return "pretraining"
    task = recipe[TASK]
    return str(task.get("name") if isinstance(task, Mapping) else task)


def _problems_of_objectives(sweep: SweepRecipe) -> Iterator[str]:
    scores = {SCORE.metric, ERROR.metric}
    if TASK not in sweep.base:
        if scores & {*sweep.objectives}:
            yield "objectives: dev_score and dev_error are of fine-tuning; pretraining is judged by validation_loss"
        return
    task = draft(FinetuneRecipe, merge(sweep.base, sweep.overrides)).settings
    expected = ERROR.metric if task is not None and task.task.lower_is_better else SCORE.metric
    if sweep.objectives[0] != expected or (scores - {expected}) & {*sweep.objectives}:
        yield f"objectives: this task is judged by {expected}; give that as the first"


def _problems_of_scheduler(sweep: SweepRecipe) -> Iterator[str]:
    if isinstance(sweep.scheduler, RayScheduler):
        try:
            sweep.scheduler.build()
        except UserError as error:
            yield f"scheduler: {error}"


def _problems_of_hyperparameter(sweep: SweepRecipe, key: str) -> Iterator[str]:
    hyperparameter, values = sweep.space[key], {}
    if sweep.searcher.name == "grid" and hyperparameter.listed is None:
        yield f"space: {key}: a grid needs a list of values; give it as choice, or take another searcher"
    if VARIANT in sweep.space and key != VARIANT:
        values[VARIANT] = sweep.space[VARIANT].value(0.0)
    recipe = draft(sweep.recipe_class, sweep.mapping(values))
    for other, condition in hyperparameter.when.items():
        if other in sweep.space:
            values[other] = condition[0] if isinstance(condition, list) else condition
        elif not recipe.problems and value_at(to_mapping(recipe.settings), other) is None:
            yield f"space: {key}: when: {other} is not a key of the recipe and none of the space"
    # The recipes of the variants are checked on their own.
    if key == VARIANT:
        return
    for value in filter(_may_name_code, hyperparameter.choice or hyperparameter.grid or ()):
        with own_code.trusting(own_code.is_trusted(), f"space: {key}"):
            draft(sweep.recipe_class, sweep.mapping({**values, key: value}))
    try:
        problems = draft(
            sweep.recipe_class, sweep.mapping({**values, key: hyperparameter.value(0.0)})
        ).problems
    except UserError as error:
        problems = (str(error),)
    yield from (f"space: {key}: {problem}" for problem in problems if problem not in recipe.problems)


def _may_name_code(value: Any) -> bool:
    return any(map(_may_name_code, value.values())) if isinstance(value, Mapping) else is_custom(value)


def with_task_defaults(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a sweep, with the defaults of a task if its base is a recipe of fine-tuning.

    A trial of a task is then the run that `tokenfree finetune` would make with its setting: it has the same
    steps and validations, and none is stopped early. If all values can be listed, every combination is tried.
    """
    base, space = mapping.get("base"), mapping.get("space")
    if not isinstance(base, Mapping) or TASK not in base:
        return dict(mapping)
    recipe = draft(FinetuneRecipe, merge(base, mapping.get("overrides") or {}))
    if recipe.settings is None:
        # Its problems are reported when the sweep is built.
        return dict(mapping)
    train, lower = recipe.settings.train, recipe.settings.task.lower_is_better
    steps = value_at(mapping, "budget.steps", train.steps)
    defaults: dict[str, Any] = {
        "objectives": [(ERROR if lower else SCORE).metric],
        "budget": {"steps": train.steps},
        "reports": math.ceil(steps / train.validate_every_steps) if isinstance(steps, int) else 1,
        "scheduler": "none",
    }
    hyperparameters = space.values() if isinstance(space, Mapping) else ()
    if all(
        isinstance(hyperparameter, Mapping) and any(kind in hyperparameter for kind in _LISTS)
        for hyperparameter in hyperparameters
    ):
        defaults["searcher"] = "grid"
    return {**defaults, **mapping}
