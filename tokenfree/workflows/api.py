"""Functions of `tokenfree.NAME` beyond those of the packages: recipes by name, predictions and export in one call."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, accepting_path
from tokenfree.core.own_code import trusting
from tokenfree.core.settings import build, override
from tokenfree.workflows.recipes import kinds, library

if TYPE_CHECKING:
    from tokenfree.preprocess.config import PreprocessConfig
    from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
    from tokenfree.train.huggingface.exported_folder import Exported
    from tokenfree.train.sweep.recipe import SweepRecipe


class Recipe:
    """Builds the settings of a job from a recipe, given by its name in tokenfree or as a YAML file.

    Keyword arguments are top-level keys of the recipe, and their values are merged over it. As with options
    on the command line, a part that changes its `name` keeps the keys that the new part has too. With
    `trust_code`, modules outside tokenfree that the recipe names are imported; those that are already
    imported need none.
    """

    @staticmethod
    def from_name(recipe: AnyPath, *, trust_code: bool = False, **overrides: Any) -> "PretrainRecipe":
        """Build a pretraining recipe, such as `Recipe.from_name("canine-s-tiny", train={"steps": 500})`.

        Raises UserError if there is no such recipe, it is of another kind, or keys or values are invalid.
        """
        return _build_recipe(kinds.PRETRAINING, recipe, overrides, trust_code)

    @staticmethod
    def for_finetuning(recipe: AnyPath, *, trust_code: bool = False, **overrides: Any) -> "FinetuneRecipe":
        """Build a fine-tuning recipe, such as `Recipe.for_finetuning("ner", train={"steps": 500})`."""
        return _build_recipe(kinds.FINETUNING, recipe, overrides, trust_code)

    @staticmethod
    def for_sweep(recipe: AnyPath, *, trust_code: bool = False, **overrides: Any) -> "SweepRecipe":
        """Build a sweep recipe, such as `Recipe.for_sweep("three-knobs-tiny", trials=4)`."""
        from tokenfree.workflows.recipes.training import build_sweep  # imports torch

        library.check_kind(kinds.SWEEP, recipe)
        with trusting(trust_code, f"recipe {recipe}"):
            return build_sweep(library.read(recipe), overrides, f"recipe {recipe}")

    @staticmethod
    def for_preprocessing(recipe: AnyPath, **overrides: Any) -> "PreprocessConfig":
        """Build preprocessing settings, such as `Recipe.for_preprocessing("wikipedia-tiny", books=["books/"])`."""
        return _build_recipe(kinds.PREPROCESSING, recipe, overrides)


def _build_recipe(
    kind: kinds.RecipeKind, recipe: AnyPath, overrides: Mapping[str, Any], trust_code: bool = False
) -> Any:
    library.check_kind(kind, recipe)
    with trusting(trust_code, f"recipe {recipe}"):
        mapping, lost = override(kind.settings_class(), library.read_based(recipe), overrides)
        settings = build(kind.settings_class(), mapping, source=f"recipe {recipe}")
    library.warn_of_lost(lost)
    return settings


if TYPE_CHECKING:
    from tokenfree.pipelines import preprocess as _preprocess
    from tokenfree.train import finetune as _finetune
    from tokenfree.train import pretrain as _pretrain
    from tokenfree.train.sweep import run as _sweep

    finetune = accepting_path(_finetune.finetune, Recipe.for_finetuning)
    pretrain = accepting_path(_pretrain.pretrain, Recipe.from_name)
    run_preprocess = accepting_path(_preprocess.run_preprocess, Recipe.for_preprocessing)
    sweep = accepting_path(_sweep.run_sweep, Recipe.for_sweep)

# Module, function, and how a name is read.
_OF_RECIPES: dict[str, tuple[str, str, Callable[[AnyPath], Any]]] = {
    "finetune": ("tokenfree.train.finetune", "finetune", Recipe.for_finetuning),
    "pretrain": ("tokenfree.train.pretrain", "pretrain", Recipe.from_name),
    "run_preprocess": ("tokenfree.pipelines.preprocess", "run_preprocess", Recipe.for_preprocessing),
    "sweep": ("tokenfree.train.sweep.run", "run_sweep", Recipe.for_sweep),
}


@functools.cache
def __getattr__(name: str) -> Any:
    """Return a function that trains or preprocesses. Importing its module takes seconds."""
    if name not in _OF_RECIPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, function, read = _OF_RECIPES[name]
    wrapper = accepting_path(getattr(importlib.import_module(module), function), read)
    # So that pickle finds it, for processes that call it.
    wrapper.__module__, wrapper.__qualname__ = __name__, name
    return wrapper


def predict(
    run: AnyPath,
    texts: Sequence[str],
    *,
    top: int = 5,
    data: AnyPath | None = None,
    step: int | None = None,
    trust_code: bool = False,
) -> list[Any]:
    """Return what a run predicts for each text. `load_predictor` and `load_finetuned` keep the model for later calls.

    For a fine-tuned run, each item is a mapping as returned by `load_finetuned`. For a pretraining run, each
    item has a list for each `[MASK]` of the text, with the `top` predictions as `Guess`, the most likely
    first.

    Args:
        texts: Texts to predict for. For a pretraining run they need marks such as `[MASK]` or `[MASK:4]`. The
            two texts of a pair are separated by a tab.
        data: Directory with the vocabulary; default: that of the run's data.
        step: Step of the checkpoint to use; see `checkpoint_of` for the default.
        trust_code: Whether to run the code outside tokenfree that the run names.

    Raises UserError if there is no such run, `top` is less than 1, or a text has no mark or is too long.
    Raises JobError if the checkpoint is damaged.
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
    run: AnyPath,
    folder: AnyPath,
    *,
    to: Literal["huggingface", "onnx"] = "huggingface",
    step: int | None = None,
    trust_code: bool = False,
) -> "Exported":
    """Export the model of a run to a folder for transformers (`from_pretrained`) or as a graph for onnxruntime.

    The folder must be new or empty. See `checkpoint_of` for the default of `step`. `trust_code` allows the
    run's custom code.

    Raises UserError if there is no such run or format, the format does not support the model, or the folder
    is not empty, and JobError if the checkpoint is damaged.
    """
    if to == "onnx":
        from tokenfree.train.huggingface.onnx import export_graph

        return export_graph(run, folder, step=step, trust_code=trust_code)
    if to != "huggingface":
        raise UserError(f"to={to!r}: no such format. Give 'huggingface' or 'onnx'.")
    from tokenfree.train.huggingface.folders import export_run

    return export_run(run, folder, step=step, trust_code=trust_code)
