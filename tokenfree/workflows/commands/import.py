"""Make a run from a CANINE or BERT in a transformers folder, such as the official weights.

The run has one checkpoint, at step 0, which can embed texts, be fine-tuned, or be trained further with
`pretrain --init-from`. Keys of the recipe override settings of the folder if its weights permit it, such as
another attention pattern or a longer input.

Examples:
  tokenfree import downloads/canine-s --output runs/canine-s
  tokenfree import downloads/canine-s --output runs/long --model.trunk.attention.name sliding_global
"""

import argparse

from tokenfree.workflows.recipes.library import IMPORTED
from tokenfree.workflows.recipes.options import add_help_keys, add_trust_argument
from tokenfree.workflows.terminal.results import next_command
from tokenfree.workflows.terminal.verbosity import show_settings

KIND = IMPORTED  # kind of recipe whose keys are options of the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder with config.json and model.safetensors")
    parser.add_argument("--output", metavar="RUN", required=True, help="folder of the new run")
    add_help_keys(parser, KIND)
    add_trust_argument(parser, "an option")


def run(args: argparse.Namespace) -> int:
    from tokenfree.core.settings import nest
    from tokenfree.train.huggingface.folders import import_folder

    recipe = import_folder(args.folder, args.output, nest(args.overrides))
    show_settings(args.verbosity, recipe)
    model = recipe.model
    print(
        f"{args.output}: {model.embedder.name}, {model.downsampler.name}, {model.trunk.layers} layers of width "
        f"{model.width}, up to {recipe.train.length:,} positions"
    )
    print(next_command("pretrain", "RECIPE", "--data", "DIR", "--output", "RUN", "--init-from", args.output))
    return 0
