"""Process the failed pages of a data directory again, after a fix.

Pages that succeed are written to `failures/replayed.jsonl`, which `tokenfree preprocess --books` reads. The
data directory itself does not change.

Example:
  tokenfree replay data/en
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "directory": {"metavar": "DIR", "help": "a data directory made by `tokenfree preprocess`"},
    **options.trust("DIR"),
}
