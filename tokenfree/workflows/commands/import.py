"""Make a run of a CANINE (or BERT) in a folder of the library transformers, such as the official weights.

The run has one checkpoint, at step 0, to encode texts with, to fine-tune, or to train on with `pretrain --init-from`.
Keys of the recipe lay other settings over those of the folder, as far as its weights serve them: another attention
pattern, a longer input.

Examples:
  tokenfree import downloads/canine-s --output runs/canine-s
  tokenfree import downloads/canine-s --output runs/long --model.trunk.attention.name sliding_global --train.length 8192
"""

import argparse

from tokenfree.workflows.recipes.keys import IMPORTED
from tokenfree.workflows.recipes.options import add_help_keys

KIND = IMPORTED  # of recipe whose keys the command takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR --output RUN`."""
    parser.add_argument("folder", metavar="DIR", help="a folder with config.json and model.safetensors")
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the run to make")
    add_help_keys(parser, KIND)


def run(args: argparse.Namespace) -> int:
    """Make the run, and print what it is."""
    from tokenfree.core.settings import nest
    from tokenfree.train.huggingface.folders import import_folder
    from tokenfree.workflows.terminal.results import next_command
    from tokenfree.workflows.terminal.verbosity import show_settings

    recipe = import_folder(args.folder, args.output, nest(args.overrides))
    show_settings(args.verbosity, recipe)
    model = recipe.model
    print(
        f"{args.output}: {model.embedder.name}, {model.downsampler.name}, {model.trunk.layers} layers of width "
        f"{model.width}, up to {recipe.train.length:,} positions"
    )
    print(next_command("pretrain", "RECIPE", "--data", "DIR", "--output", "RUN", "--init-from", args.output))
    return 0
