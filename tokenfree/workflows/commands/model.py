"""Print the parts of a recipe's model: shapes, parameters, multiply-accumulates, and the memory of a step.

Multiply-accumulates are those of the forward pass of one example, with targeted upsampling as in pretraining.

Example:
  tokenfree model canine-s-base --model.downsampler.rate 2
  tokenfree model --list
  tokenfree model --show canine-s-tiny > mine.yaml
"""

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PRETRAINING as KIND

ARGUMENTS: options.Arguments = {
    **options.recipe(KIND, optional=True),
    **options.JSON,
    "--list": {"action": "store_true", "help": "list the recipes of tokenfree, and exit"},
    "--show": {
        "metavar": "RECIPE",
        "help": "print a recipe of any kind with the settings of its bases, as YAML, and exit",
    },
}
