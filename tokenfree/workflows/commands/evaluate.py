"""Evaluate a run on held-out windows of a data directory, or a fine-tuned one on a file of examples.

Windows and masks are the same in every evaluation, so losses of different runs can be compared. The command
also prints context-free baselines on the same targets, and the model's own loss without context: with all
text except white space hidden (probe_blank), and with the text of another window (probe_other). Hidden
targets are also listed by language and by script if there are several.

For a fine-tuned run, --data is a file of the task with the right answers, and the scores are printed. A task
that makes its own examples, such as mirrored_summation, needs no file.

Examples:
  tokenfree evaluate runs/tiny --data data/en
  tokenfree evaluate runs/both --data data/en:0.7 data/de:0.3
  tokenfree evaluate runs/sst --data sst/stsa.binary.dev
  tokenfree evaluate runs/tiny --data data/en --windows 2000 --json
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    **options.RUN,
    **options.data(f"{options.DATA_HELP}; for a fine-tuned run, a file of examples", metavar="PATH"),
    "--windows": {
        "metavar": "N",
        "type": options.at_least(1),
        "help": "number of evenly spaced windows (default: train.validation_windows)",
    },
    **options.STEP,
    **options.trust(),
    **options.JSON,
}
