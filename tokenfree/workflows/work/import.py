"""Do the work of `tokenfree import`."""

import argparse

from tokenfree.core.settings import nest
from tokenfree.train.huggingface.folders import import_folder
from tokenfree.workflows.terminal.results import next_command, show_settings


def run(args: argparse.Namespace) -> None:
    recipe = import_folder(args.folder, args.output, nest(args.overrides))
    show_settings(args.verbosity, recipe)
    model = recipe.model
    print(
        f"{args.output}: {model.embedder.name}, {model.downsampler.name}, {model.trunk.layers} layers of width "
        f"{model.width}, up to {recipe.train.length:,} positions"
    )
    print(next_command("pretrain", "RECIPE", "--data", "DIR", "--output", "RUN", "--init-from", args.output))
