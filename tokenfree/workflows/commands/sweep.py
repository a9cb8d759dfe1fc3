"""Search over recipe keys for the settings that work best.

Runs trials of a pretraining recipe under Ray Tune, each with other values of the keys in the recipe's
`space`, stops the worse ones early, and leaves `sweep.csv`, `trials.jsonl`, `report.html` and `best.yaml`, a
recipe ready to pretrain. Run the same command, or `tokenfree sweep --output SWEEP`, to resume a sweep that
was killed.

Where the base is a fine-tuning recipe, give the files of its task in place of --data. Every setting is
trained with all seeds and judged by the main score on --dev; only the best one is evaluated on --test, once,
with all its seeds. The scores are in `result.json`.

Examples:
  tokenfree sweep three-knobs-tiny --data data/en --output sweeps/first --trials 24 --concurrent 4
  tokenfree sweep learning-rates --base ner --train train.txt --dev dev.txt --output sweeps/rates
"""

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import SWEEP as KIND

ARGUMENTS: options.Arguments = {
    **options.recipe(KIND, optional=True, help_text=options.RECORDED.replace("run", "sweep")),
    **options.data(),
    "--train": {"metavar": "FILE", "help": "for a task: training examples"},
    "--dev": {"metavar": "FILE", "help": "for a task: development set, which decides between settings"},
    "--test": {"metavar": "FILE", "help": "for a task: test set, for the best setting alone"},
    "--init-from": {
        "metavar": "RUN|FOLDER",
        "help": "for a task: model and weights of each trial: a run, or a transformers folder",
    },
    "--vocabulary": {
        "metavar": "FILE",
        "help": "for a task: SentencePiece model, for a subword model from scratch",
    },
    "--output": {"metavar": "RUN", "required": True, "help": "the folder of the sweep"},
    "--dry-run": {"action": "store_true", "help": "show settings, placement and costs, and exit"},
    "--trials": {"metavar": "N", "type": int, "help": "number of settings to try"},
    "--concurrent": {
        "metavar": "N",
        "type": int,
        "help": "largest number of trials at a time (default: as many as fit the CPUs and GPUs)",
    },
}
