"""Pretrain a model on a data directory.

Run the same command, or `tokenfree pretrain --output RUN`, to resume a run that was stopped or killed. One
worker trains in this process, several train under Ray Train. Batches do not depend on the number of workers.
Keys of the recipe are options too.

Several data directories are mixed: `--data A:0.7 B:0.3` takes seven of ten samples from A, in a fixed order.
Without weights, samples are in proportion to characters. The directories must share one subword vocabulary.
Validation windows are divided in the same proportions; the losses are `validation_loss_data_1` and so on. A
number after the last colon is a weight, unless a folder has that name.

--init-from starts a new run from the weights of another run or of a transformers folder, such as the official
CANINE. Tensors that match by name and shape are loaded; the others are listed. Optimizer and step start from
zero.

--extend-to makes an existing run longer, finished or not. The remaining steps have the learning rates of a
run of that length, so the rate of a finished run jumps up; the printed line shows both rates.

Examples:
  tokenfree pretrain canine-s-tiny --data data/en --output runs/tiny --workers 2
  tokenfree pretrain canine-s-base --data data/en --output runs/base --workers 2:8 --train.learning_rate 0.002
  tokenfree pretrain canine-s-tiny --data data/de --output runs/de --init-from runs/tiny
  tokenfree pretrain canine-s-tiny --data data/en:0.7 data/de:0.3 --output runs/both
  tokenfree pretrain --output runs/tiny --extend-to 2000
"""

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PRETRAINING as KIND

ARGUMENTS: options.Arguments = {
    **options.recipe(KIND, optional=True, help_text=options.RECORDED),
    **options.data(),
    "--output": {"metavar": "RUN", "required": True, "help": "the folder of the run"},
    "--workers": {"metavar": "N | MIN:MAX", "default": "1", "help": "number of training workers (default 1)"},
    "--init-from": {"metavar": "RUN|FOLDER", "help": "initial weights: a run, or a transformers folder"},
    "--extend-to": {"metavar": "STEPS", "type": int, "help": "new total number of steps of this run"},
    "--dry-run": {"action": "store_true", "help": "check all inputs, time a few steps, and exit"},
}
