"""Predict labels of texts with a fine-tuned run, or the text behind [MASK] with a pretraining run.

A fine-tuned run prints labels with probabilities, tags, or spans with their character offsets. A tab
separates the two texts of a pair, and a question from the text that answers it. TEXT can be a file or `-`
(standard input) with one text per line.

CANINE-S and a subword BERT predict subwords, Byte2Word predicts words, CANINE-C and a character BERT predict
the characters of a word. Character models see how many characters are hidden: [MASK:5] hides five. For [MASK]
alone, several lengths are tried with equal weight.

Examples:
  tokenfree predict runs/sst "A film to see twice."
  tokenfree predict runs/tiny "The capital of [MASK] is a large [MASK:4]."
  tokenfree predict runs/tiny --top 3 --json - < lines.txt
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    **options.RUN,
    "texts": {"metavar": "TEXT", "nargs": "+", "help": "a text, a file of them, or - for standard input"},
    "--data": {
        "metavar": "DIR",
        "help": "data directory with the vocabulary (default: that of the training data)",
    },
    "--top": {
        "metavar": "N",
        "type": options.at_least(1),
        "default": 5,
        "help": "number of predictions (default 5)",
    },
    **options.STEP,
    **options.trust(),
    "--json": {"action": "store_true", "help": "print one JSON object for each text"},
}
