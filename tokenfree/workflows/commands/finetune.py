"""Fine-tune a model for a task, and evaluate it.

The recipe names the task: classification, pairs, ner, pos and others. Files have the format of their data
set; labels are those of --train. The checkpoint that scores best on --dev is kept, and evaluated on --test
once, at the end. Scores are in RUN/result.json, predictions in RUN/predictions. Run the same command, or
`tokenfree finetune --output RUN`, to resume a run that was stopped or killed.

--init-from starts from the weights and the model of a run or a transformers folder. Without it, the model of
the recipe is trained from scratch. Keys of the recipe are options too.

Examples:
  tokenfree finetune classification --train train.tsv --dev dev.tsv --output runs/labels
  tokenfree finetune ner --init-from runs/tiny --train train.txt --dev dev.txt --output runs/ner
  tokenfree finetune pairs --train train.tsv --dev dev.tsv --output runs/rte --task.glue rte
"""

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import FINETUNING as KIND

ARGUMENTS: options.Arguments = {
    **options.recipe(KIND, optional=True, help_text=options.RECORDED),
    "--train": {"metavar": "FILE", "help": "training examples"},
    "--dev": {"metavar": "FILE", "help": "development set, which chooses the checkpoint"},
    "--test": {"metavar": "FILE", "help": "test set, evaluated once, at the end"},
    "--output": {"metavar": "RUN", "required": True, "help": "the folder of the run"},
    "--init-from": {"metavar": "RUN|FOLDER", "help": "model and weights: a run, or a transformers folder"},
    "--vocabulary": {"metavar": "FILE", "help": "SentencePiece model, for a subword model from scratch"},
    "--workers": {"metavar": "N | MIN:MAX", "default": "1", "help": "number of training workers (default 1)"},
    "--dry-run": {"action": "store_true", "help": "check the recipe, the files and the weights, and exit"},
}
