"""Make a run from a CANINE or BERT in a transformers folder, such as the official weights.

The run has one checkpoint, at step 0, which can embed texts, be fine-tuned, or be trained further with
`pretrain --init-from`. Keys of the recipe override settings of the folder if its weights permit it, such as
another attention pattern or a longer input.

Examples:
  tokenfree import downloads/canine-s --output runs/canine-s
  tokenfree import downloads/canine-s --output runs/long --model.trunk.attention.name sliding_global
"""

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import IMPORTED as KIND

ARGUMENTS: options.Arguments = {
    "folder": {"metavar": "DIR", "help": "folder with config.json and model.safetensors"},
    "--output": {"metavar": "RUN", "required": True, "help": "folder of the new run"},
    **options.help_keys(KIND),
    **options.trust("an option"),
}
