"""The settings of a sweep, and the recipe that each of its trials trains."""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field

from tokenfree.core.errors import UserError
from tokenfree.core.settings import Slot, build, draft, merge, nest, part, problems_of, settings, to_mapping, value_at
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, Recipe
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space import targets
from tokenfree.train.sweep.space.knobs import VARIANT, Knob, Values
from tokenfree.train.sweep.space.targets import ERROR, SCORE, Objective, Target

DEFAULT_TRIALS = 8
TASK = "task"  # a key that recipes of fine-tuning have alone
SEARCHER = Slot("tokenfree.train.sweep.searchers", "even", "tokenfree.train.sweep.control.slots.SEARCHER")
SCHEDULER = Slot("tokenfree.train.sweep.schedulers", "asha", "tokenfree.train.sweep.control.slots.SCHEDULER")


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
        """How much of the unit."""
        return self.steps or self.characters or self.flops or self.seconds or 0


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
        """What the recipes of trials are, by the base."""
        return class_of(self.base)

    @property
    def quality(self) -> Target:
        """What says how good a trial is, whatever it costs."""
        return targets.quality(self.objectives)

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe's mapping with `values` (dotted key -> value) laid over base and overrides."""
        base = self.variants.get(values[VARIANT], {}) if VARIANT in values else self.base
        mapping = merge(base, self.overrides)
        dotted = ((key, json.dumps(value)) for key, value in values.items() if key != VARIANT)
        return merge(mapping, nest(dotted))

    def recipe(self, values: Mapping[str, Any], seed: int = 0) -> Recipe:
        """The recipe of the trial with these values and the seed numbered `seed`.

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
        """The resolved mapping of the recipe with these values and the base's own number of steps.

        Raises:
            UserError: these values make no recipe.
        """
        return to_mapping(build(self.recipe_class, self.mapping(values), source=f"trial {dict(values)}"))

    def fixed(self, key: str, values: Values) -> Any:
        """What the recipe with these values has at a dotted key; None where it has no such key.

        Raises:
            UserError: these values make no recipe.
        """
        return value_at(self.best_recipe(values), key)


def class_of(recipe: Mapping[str, Any]) -> type[Recipe]:
    """What a recipe with this mapping is: one with a task is fine-tuned."""
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
    """What is wrong with the recipes, the knobs and the search of a sweep, a line each.

    What hangs on a value of the sweep that was refused is left out.
    """
    return problems_of(
        lambda: _problems_of_order(sweep.space),
        lambda: _problems_of_variants(sweep),
        lambda: _problems_of_recipes(sweep),
        lambda: _problems_of_kinds(sweep),
        lambda: _problems_of_objectives(sweep),
        *(functools.partial(_problems_of_knob, sweep, key) for key in sweep.space),
        lambda: sweep.searcher.problems(sweep),
        lambda: sweep.scheduler.problems(sweep),
    )


def _problems_of_order(space: Mapping[str, Knob]) -> Iterator[str]:
    try:
        spaces.ordered(space)
    except UserError as error:
        yield str(error)


def _problems_of_variants(sweep: SweepRecipe) -> Iterator[str]:
    if VARIANT in sweep.space:
        names = sweep.space[VARIANT].listed or ()
        unknown = [str(name) for name in names if name not in sweep.variants]
        if unknown or not names:
            yield f"space: {VARIANT}: {', '.join(unknown) or 'a range'}: give names of recipes to choose among"


def _problems_of_recipes(sweep: SweepRecipe) -> Iterator[str]:
    """Of those that trials change; a base whose place variants take is none of them."""
    bases = {f"variant {name}": mapping for name, mapping in sweep.variants.items()} or {"base": sweep.base}
    for name, mapping in bases.items():
        for problem in draft(class_of(mapping), merge(mapping, sweep.overrides)).problems:
            yield f"{name}{' with overrides' if sweep.overrides else ''}: {problem}"


def _problems_of_kinds(sweep: SweepRecipe) -> Iterator[str]:
    """That recipes of several kinds or tasks are mixed, or that knobs of a task set what the sweep itself does."""
    kind = _kind(sweep.base)
    for name, mapping in sweep.variants.items():
        if _kind(mapping) != kind:
            yield f"variant {name}: a recipe of {_kind(mapping)}, where the base is one of {kind}; give one kind"
    for key, remedy in (("train.seed", "give a number of seeds"), ("train.steps", "give budget.steps")):
        if TASK in sweep.base and key in sweep.space:
            yield f"space: {key}: the sweep sets it for each trial; {remedy}"


def _kind(recipe: Mapping[str, Any]) -> str:
    """What is learned by it: `pretraining`, or the name of a task."""
    if TASK not in recipe:
        return "pretraining"
    task = recipe[TASK]
    return str(task.get("name") if isinstance(task, Mapping) else task)


def _problems_of_objectives(sweep: SweepRecipe) -> Iterator[str]:
    """That a sweep of a task is judged by something else than its score, or one of pretraining by such a score."""
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
    """That the key, or one that its condition names, is none of the recipe, or has other values there."""
    knob, values = sweep.space[key], {}
    if VARIANT in sweep.space and key != VARIANT:
        values[VARIANT] = sweep.space[VARIANT].value(0.0)
    recipe = draft(sweep.recipe_class, sweep.mapping(values))
    for other, wanted in knob.when.items():
        if other in sweep.space:
            values[other] = wanted[0] if isinstance(wanted, list) else wanted
        elif not recipe.problems and value_at(to_mapping(recipe.settings), other) is None:
            yield f"space: {key}: when: {other} is no key of the recipe and none of the space"
    if key == VARIANT:  # whose recipes are told of by themselves
        return
    try:
        found = draft(sweep.recipe_class, sweep.mapping({**values, key: knob.value(0.0)})).problems
    except UserError as error:
        found = (str(error),)
    yield from (f"space: {key}: {problem}" for problem in found if problem not in recipe.problems)
