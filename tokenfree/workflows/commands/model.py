"""Print the parts of a recipe's model: shapes, parameters, multiply-accumulates, and the memory of a step.

Multiply-accumulates are those of the forward pass of one example, with targeted upsampling as in pretraining.

Example:
  tokenfree model canine-s-base --model.downsampler.rate 2
  tokenfree model --list
  tokenfree model --show canine-s-tiny > mine.yaml
"""

import argparse

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PRETRAINING as KIND


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--list", action="store_true", help="list the recipes of tokenfree, and exit")
    parser.add_argument(
        "--show",
        metavar="RECIPE",
        help="print a recipe of any kind with the settings of its bases, as YAML, and exit",
    )
