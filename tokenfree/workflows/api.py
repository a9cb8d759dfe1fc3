"""What `tokenfree.NAME` adds to the functions of the packages: recipes by name, predictions and export in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, override
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.keys import FINETUNING, PREPROCESSING, PRETRAINING, SWEEP, RecipeKind
from tokenfree.workflows.recipes.options import warn_of_lost

if TYPE_CHECKING:
    from tokenfree.preprocess.config import PreprocessConfig
    from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
    from tokenfree.train.huggingface.exported_folder import Exported
    from tokenfree.train.huggingface.onnx import ExportedGraph
    from tokenfree.train.sweep.recipe import SweepRecipe


class Recipe:
    """Builds the settings of a job from a recipe: the name of one that comes with tokenfree, or a YAML file.

    Keywords are the recipe's top-level keys, with values laid over those of the recipe. A part that changes its `name`
    keeps the keys that the new part has too, as options on the command line do.
    """

    @staticmethod
    def from_name(recipe: str, **overrides: Any) -> PretrainRecipe:
        """Build a pretraining recipe, such as `Recipe.from_name("canine-s-tiny", train={"steps": 500})`.

        Raises:
            UserError: there is no such recipe or it is of another kind, or keys or values are wrong; all are named.
        """
        return _built(PRETRAINING, recipe, overrides)

    @staticmethod
    def for_finetuning(recipe: str, **overrides: Any) -> FinetuneRecipe:
        """Build a fine-tuning recipe, such as `Recipe.for_finetuning("ner", train={"steps": 500})`.

        Raises:
            UserError: as `from_name`.
        """
        return _built(FINETUNING, recipe, overrides)

    @staticmethod
    def for_sweep(recipe: str, **overrides: Any) -> SweepRecipe:
        """Build a sweep recipe, such as `Recipe.for_sweep("three-knobs-tiny", trials=4)`.

        Raises:
            UserError: as `from_name`.
        """
        from tokenfree.train.sweep.recipe import SweepRecipe

        library.check_kind(SWEEP, recipe)
        mapping = library.read(recipe)
        if "budget" in overrides:
            mapping.pop("budget", None)  # a budget in another unit replaces that of the recipe
        mapping, lost = override(SweepRecipe, mapping, overrides)
        made = build(SweepRecipe, library.resolve_sweep(mapping), source=f"recipe {recipe}")
        warn_of_lost(lost)
        return made

    @staticmethod
    def for_preprocessing(recipe: str, **overrides: Any) -> PreprocessConfig:
        """Build preprocessing settings, such as `Recipe.for_preprocessing("wikipedia-tiny", books=["books/"])`.

        Raises:
            UserError: as `from_name`.
        """
        return _built(PREPROCESSING, recipe, overrides)


def _built(kind: RecipeKind, recipe: str, overrides: Mapping[str, Any]) -> Any:
    library.check_kind(kind, recipe)
    mapping, lost = override(kind.settings_class(), library.read_based(recipe), overrides)
    made = build(kind.settings_class(), mapping, source=f"recipe {recipe}")
    warn_of_lost(lost)
    return made


def predict(
    run: str,
    texts: Sequence[str],
    *,
    top: int = 5,
    data: str | None = None,
    step: int | None = None,
    trust_code: bool = False,
) -> list[Any]:
    """Return what a run predicts for each text. `load_predictor` and `load_finetuned` keep the model for later calls.

    For a fine-tuned run, each item is the mapping that `load_finetuned` gives. For a pretraining run, it holds a list
    for each `[MASK]` of the text: the `top` predictions as `Guess`, the most likely first.

    Args:
        run: path or address of a run.
        texts: of a pretraining run with marks such as `[MASK]` or `[MASK:4]`, of a pair with a tab between.
        top: number of predictions for each mark.
        data: directory with the vocabulary; by default that of the run's data.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run, `top` is less than 1, or a text is without a mark or too long.
        JobError: the checkpoint is damaged.
    """
    from tokenfree.train.inference.finetuned import load_finetuned
    from tokenfree.train.inference.predictor import load_predictor
    from tokenfree.train.runs.config import is_finetuned

    if isinstance(texts, str):
        raise UserError(f"texts={texts!r}: a single text. Give a list of texts.")
    if top < 1:
        raise UserError(f"top={top}: give at least 1")
    if is_finetuned(run):
        return list(load_finetuned(run, step=step, trust_code=trust_code)(texts))
    predictor = load_predictor(run, data, step=step, trust_code=trust_code)
    return [predictor(text, top) for text in texts]


def export(
    run: str | Path,
    folder: str | Path,
    *,
    to: Literal["huggingface", "onnx"] = "huggingface",
    step: int | None = None,
    trust_code: bool = False,
) -> Exported | ExportedGraph:
    """Write the model of a run as a folder for transformers (`from_pretrained`) or as a graph for onnxruntime.

    Args:
        run: path or address of a run.
        folder: new or empty.
        to: format of the folder.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run or format, the format has no model like it, or the folder holds files already.
        JobError: the checkpoint is damaged.
    """
    if to == "onnx":
        from tokenfree.train.huggingface.onnx import export_graph

        return export_graph(run, folder, step=step, trust_code=trust_code)
    if to != "huggingface":
        raise UserError(f"to={to!r}: no such format. Give 'huggingface' or 'onnx'.")
    from tokenfree.train.huggingface.folders import export_run

    return export_run(run, folder, step=step, trust_code=trust_code)
