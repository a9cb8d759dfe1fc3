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

import argparse

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import SWEEP as KIND


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True, help_text=options.RECORDED)
    options.add_data_argument(parser)
    parser.add_argument("--train", metavar="FILE", help="for a task: training examples")
    parser.add_argument(
        "--dev", metavar="FILE", help="for a task: development set, which decides between settings"
    )
    parser.add_argument("--test", metavar="FILE", help="for a task: test set, for the best setting alone")
    parser.add_argument(
        "--init-from",
        metavar="RUN|FOLDER",
        help="for a task: model and weights of each trial: a run, or a transformers folder",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="for a task: SentencePiece model, for a subword model from scratch",
    )
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the sweep")
    parser.add_argument("--dry-run", action="store_true", help="show settings, placement and costs, and exit")
    parser.add_argument("--trials", metavar="N", type=int, help="number of settings to try")
    parser.add_argument(
        "--concurrent",
        metavar="N",
        type=int,
        help="largest number of trials at a time (default: as many as fit the CPUs and GPUs)",
    )
