"""Make one self-contained HTML page about runs, sweeps and data directories.

For a pretraining run it shows first whether the model uses its context: how far its loss on hidden targets is
below the best guess without context, with a 95% interval, and how much the loss rises when the context is
hidden. Then come five predictions of hidden words, losses, throughput, restarts and settings. The data must
be where the run was trained on them, or among the folders. Several runs are compared by the characters that
they read.

For a sweep, also a running one, it shows the best setting, the effect of each hyperparameter, loss against
speed, and every trial. For a fine-tuned run it shows its scores as it learned, the scores of each label, and
some right and wrong predictions of the test part next to the correct answers. RUN/predictions has all of them.

Examples:
  tokenfree report data/en runs/tiny sweeps/first --output report.html
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "folders": {"metavar": "RUN", "nargs": "+", "help": "folders of runs, sweeps or data directories"},
    "--output": {"metavar": "FILE", "required": True, "help": "the page to write"},
    **options.STEP,
}
