"""Write the embeddings of a corpus as Arrow shards.

The corpus is a file with one text per line (an empty line is an empty text), JSON lines (.jsonl, the field of
--field), either compressed or not, standard input (-), or all windows of a data directory. RUN is a
pretraining or fine-tuning run, or a run made by `tokenfree import`. `datasets.load_from_disk(DIR)` opens the
result; row i is text i.

--vectors texts writes one embedding per text: the mean over its characters, or what --pooling names; words
writes one per word, characters one per character. A text that is too long for the model is cut into windows,
between sentences if possible, and the column `windows` has their number. With --long refuse it is an error.

Run the same command again to resume. The bytes do not depend on the number of workers. Without --workers the
command uses one process without Ray. With --workers, Ray runs them on the cluster of RAY_ADDRESS or on this
machine.

Examples:
  tokenfree embed runs/tiny texts.txt --output vectors/texts --workers 4
  tokenfree embed runs/tiny - --output vectors/words --vectors words < texts.txt
  tokenfree embed runs/tiny reviews.jsonl.gz --field review --output vectors/reviews --pooling cls
"""

import argparse

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    **options.RUN,
    "source": {"metavar": "PATH", "help": "a file, - for standard input, or a data directory"},
    "--output": {"metavar": "DIR", "required": True, "help": "folder of the embeddings"},
    "--vectors": {
        "choices": ("texts", "words", "characters"),
        "default": "texts",
        "help": "what gets an embedding (default texts)",
    },
    "--pooling": {
        "choices": ("mean", "cls", "cls_max", "pooled"),
        "help": "embedding of a text (default mean): mean over characters; CLS; CLS and the maximum; the pooler",
    },
    "--long": {
        "choices": ("windows", "refuse"),
        "default": "windows",
        "help": "what is done with a text longer than the model reads (default windows)",
    },
    "--field": {
        "metavar": "NAME",
        "default": "text",
        "help": "field of JSON lines with the text (default text)",
    },
    "--workers": {
        "metavar": "N",
        "type": options.at_least(1),
        "help": "number of Ray workers (default: none, without Ray)",
    },
    "--device": {"metavar": "NAME", "default": "cpu", "help": "device, such as cuda (default cpu)"},
    **options.STEP,
    **options.trust(),
}


def check(args: argparse.Namespace) -> None:
    """Raise UserError if options do not fit together."""
    if args.pooling is not None and args.vectors != "texts":
        raise UserError(f"--pooling {args.pooling}: is for --vectors texts, not {args.vectors}; leave it out")
