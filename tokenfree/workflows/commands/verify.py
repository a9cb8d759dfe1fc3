"""Check every hash and invariant of a data directory, or every hash of a run, a sweep, an export or embeddings.

If something is wrong, the exit status is 1, and the message names the first invalid file and the row of a
shard. In a run or sweep that is still training, only the checkpoints are checked.

Examples:
  tokenfree verify data/en
  tokenfree verify runs/first
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "directory": {
        "metavar": "DIR",
        "help": "a data directory, an export, or the --output of `tokenfree pretrain`, `finetune`, `sweep` or `embed`",
    },
    **options.JSON,
}
