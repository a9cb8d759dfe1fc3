"""Show what a data directory or a folder of embeddings holds: counts, columns, and a few windows or texts.

`|` separates words and `·` subwords. Masked characters are shown as blocks, replaced ones are underlined. A
run of characters that the vocabulary lacks is one subword in `<>`.

Examples:
  tokenfree inspect data/en --sample 2
  tokenfree inspect vectors/texts
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "directory": {"metavar": "DIR", "help": "the --output of `tokenfree preprocess` or `embed`"},
    "--sample": {
        "metavar": "N",
        "type": options.at_least(0),
        "default": 3,
        "help": "windows or texts to show (default 3)",
    },
    "--width": {
        "metavar": "N",
        "type": options.at_least(1),
        "default": 400,
        "help": "characters of each to show (default 400)",
    },
    **options.JSON,
}
