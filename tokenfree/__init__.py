"""Pretrain character- and byte-level language encoders, from a raw Wikipedia dump to a model in transformers.

`import tokenfree` gives the names of `__all__`. Each is loaded on first use, so importing the package stays
fast. Preprocessing is `run_preprocess`, because `tokenfree.preprocess` is a package.

Import tokenfree before torch: the import sets OMP_WAIT_POLICY=passive unless the variable is set, and OpenMP
reads it when torch is loaded. Threads that spin while they wait made training on a busy machine 40 times
slower.
"""

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenfree.train.data.loader import load_windows
    from tokenfree.train.evaluate import evaluate
    from tokenfree.train.inference.embed import embed
    from tokenfree.train.inference.finetuned import load_finetuned
    from tokenfree.train.inference.predictor import load_predictor
    from tokenfree.train.inference.text_encoder import load_encoder
    from tokenfree.workflows.api import Recipe, export, finetune, predict, pretrain, run_preprocess, sweep

    __version__: str

__all__ = [
    "Recipe",
    "__version__",
    "embed",
    "evaluate",
    "export",
    "finetune",
    "load_encoder",
    "load_finetuned",
    "load_predictor",
    "load_windows",
    "predict",
    "pretrain",
    "run_preprocess",
    "sweep",
]

_HOMES = {
    "Recipe": "tokenfree.workflows.api",
    "embed": "tokenfree.train.inference.embed",
    "evaluate": "tokenfree.train.evaluate",
    "export": "tokenfree.workflows.api",
    "finetune": "tokenfree.workflows.api",
    "load_encoder": "tokenfree.train.inference.text_encoder",
    "load_finetuned": "tokenfree.train.inference.finetuned",
    "load_predictor": "tokenfree.train.inference.predictor",
    "load_windows": "tokenfree.train.data.loader",
    "predict": "tokenfree.workflows.api",
    "pretrain": "tokenfree.workflows.api",
    "run_preprocess": "tokenfree.workflows.api",
    "sweep": "tokenfree.workflows.api",
}

if "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    warnings.warn(
        "torch was imported before tokenfree: OMP_WAIT_POLICY=passive has no effect, and training on a busy machine "
        "can be many times slower. Import tokenfree first, or set the variable before Python starts.",
        stacklevel=2,
    )
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from tokenfree.core.machine import version_of

        return version_of("tokenfree")
    if name not in _HOMES:
        # With it, Python names the nearest attribute.
        module = sys.modules[__name__]
        raise AttributeError(f"module 'tokenfree' has no attribute {name!r}", name=name, obj=module)
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from tokenfree.core.machine import install_command

        error.add_note(f"tokenfree.{name} needs more packages: {install_command('all')}")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
