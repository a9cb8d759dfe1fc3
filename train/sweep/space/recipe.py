"""The settings of a sweep, and the recipe that each of its trials trains."""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import Slot, build, merge, nest, part, settings, to_mapping, value_at
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep.space import knobs as spaces
from tokenfree.train.sweep.space.knobs import VARIANT, Knob, Values

DEFAULT_TRIALS = 8
Objective = Literal["validation_loss", "characters_per_second"]


@settings
class Budget:
    """What a trial may use: exactly one of the units. Characters and arithmetic are counted over all workers."""

    steps: Annotated[int, Field(ge=1)] | None = None
    characters: Annotated[float, Field(gt=0)] | None = None  # of text, without special ones and padding
    flops: Annotated[float, Field(gt=0)] | None = None  # of forward and backward passes
    seconds: Annotated[float, Field(gt=0)] | None = None  # in training steps, validations left out

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
    """A search over dotted keys of a pretraining recipe.

    `base` is that recipe (a name or file on disk, a mapping here), `overrides` is laid over it for every trial and for
    the best recipe. A knob named `variant` chooses among other recipes, which take the place of `base` (names or files
    on disk; here `variants` holds their mappings).
    """

    base: dict[str, Any]
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    space: Annotated[dict[str, Knob], Field(min_length=1)]
    searcher: Annotated[Any, Slot("tokenfree.train.sweep.searchers", "even")] = part(
        "tokenfree.train.sweep.searchers", "even"
    )
    scheduler: Annotated[Any, Slot("tokenfree.train.sweep.schedulers", "asha")] = part(
        "tokenfree.train.sweep.schedulers", "asha"
    )
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=2)] = ("validation_loss",)
    trials: Annotated[int, Field(ge=1)] | None = None  # settings to try; None: 8, or a whole grid
    seeds: Annotated[int, Field(ge=1)] = 1  # trials of each setting, with train.seed, train.seed + 1, ...
    budget: Budget = Budget(steps=100)  # of one trial
    reports: Annotated[int, Field(ge=1)] = 5  # validations of a trial, evenly over its budget
    workers: Annotated[int, Field(ge=1)] = 1  # of a trial; more than one are workers of Ray Train
    gpus_per_worker: Annotated[float, Field(ge=0)] | None = None  # None: 1 where the cluster has any
    concurrent: Annotated[int, Field(ge=1)] | None = None  # trials side by side; None: as many as have room
    seed: Annotated[int, Field(ge=0)] = 0  # of the search

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe's mapping with `values` (dotted key -> value) laid over base and overrides."""
        base = self.variants.get(values[VARIANT], {}) if VARIANT in values else self.base
        mapping = merge(base, self.overrides)
        dotted = ((key, json.dumps(value)) for key, value in values.items() if key != VARIANT)
        return merge(mapping, nest(dotted))

    def recipe(self, values: Mapping[str, Any], seed: int = 0) -> PretrainRecipe:
        """The recipe of the trial with these values and the seed numbered `seed`.

        Its steps are the budget's where that counts steps, and otherwise found when the trial begins.

        Raises:
            UserError: these values make no recipe.
        """
        recipe = build(PretrainRecipe, self.mapping(values), source=f"trial {dict(values)}")
        train: dict[str, Any] = {"seed": recipe.train.seed + seed}
        if self.budget.steps is not None:
            train["steps"] = self.budget.steps
        mapping = merge(self.mapping(values), {"train": train})
        return build(PretrainRecipe, mapping, source=f"trial {dict(values)}")

    def best_recipe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The resolved mapping of the recipe with these values and the base's own number of steps.

        Raises:
            UserError: these values make no recipe.
        """
        return to_mapping(build(PretrainRecipe, self.mapping(values), source=f"trial {dict(values)}"))

    def fixed(self, key: str, values: Values) -> Any:
        """What the recipe with these values has at a dotted key; None where it has no such key.

        Raises:
            UserError: these values make no recipe.
        """
        return value_at(self.best_recipe(values), key)


def check_space(sweep: SweepRecipe) -> None:
    """Refuse a space whose keys are no keys of the recipe, and settings of the search that do not fit together.

    Raises:
        UserError: naming the key, with the nearest known one.
    """
    spaces.ordered(sweep.space)
    _check_variants(sweep)
    for key, knob in sweep.space.items():
        parents = {other: wanted[0] if isinstance(wanted, list) else wanted for other, wanted in knob.when.items()}
        parents = {other: value for other, value in parents.items() if other in sweep.space}
        for other in knob.when:
            if other not in sweep.space and sweep.fixed(other, {}) is None:
                raise UserError(f"space: {key}: when: {other} is no key of the recipe and none of the space")
        if VARIANT in sweep.space and key != VARIANT:
            parents.setdefault(VARIANT, sweep.space[VARIANT].value(0.0))
        try:
            sweep.recipe({**parents, key: knob.value(0.0)})
        except UserError as error:
            raise UserError(f"space: {key}: {error}") from None
    problems = [*sweep.searcher.problems(sweep), *sweep.scheduler.problems(sweep)]
    if problems:
        raise UserError("; ".join(problems))


def _check_variants(sweep: SweepRecipe) -> None:
    if VARIANT not in sweep.space:
        return
    names = sweep.space[VARIANT].listed or ()
    unknown = [str(name) for name in names if name not in sweep.variants]
    if unknown or not names:
        raise UserError(f"space: {VARIANT}: {', '.join(unknown) or 'a range'}: give names of recipes to choose among")
