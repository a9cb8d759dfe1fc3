"""Write the vectors of a corpus as Arrow shards.

The corpus is a file with a text a line (an empty line is an empty text), JSON lines (.jsonl, the field of --field),
either packed or not, standard input (-), or a data directory, all of its windows. RUN is a run of pretraining or of
fine-tuning, or one that `tokenfree import` made. `datasets.load_from_disk(DIR)` opens the result; row i is text i.

--vectors texts gives one vector a text: the mean over its characters, or what --pooling names; words gives one a word,
characters one a character. A text longer than the model reads is cut into windows, between sentences where possible,
and the column `windows` says into how many; --long refuse refuses it.

The same command goes on where it was killed, and says so where the folder is complete. The bytes are the same with any
number of workers: each computes with one thread. Without --workers there is one, and no Ray; with it they are on the
cluster of RAY_ADDRESS or on this machine.

Examples:
  tokenfree embed runs/tiny texts.txt --output vectors/texts --workers 4
  tokenfree embed runs/tiny - --output vectors/words --vectors words < texts.txt
  tokenfree embed runs/tiny reviews.jsonl.gz --field review --output vectors/reviews --pooling cls
"""

import argparse

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.options import add_step_argument

VECTORS = ("texts", "words", "characters")
POOLINGS = ("mean", "cls", "cls_max", "pooled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN FILE|- --output DIR [--vectors texts|words|characters] [--workers N]`."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("source", metavar="PATH", help="a file, - for standard input, or a data directory")
    parser.add_argument("--output", metavar="DIR", required=True, help="the folder of the vectors")
    parser.add_argument("--vectors", choices=VECTORS, default="texts", help="one for each of these (default texts)")
    pooling = "the vector of a text (default mean): of its characters; of CLS; CLS and the largest values; the pooler's"
    parser.add_argument("--pooling", choices=POOLINGS, help=pooling)
    long = "what is done with a text longer than the model reads (default windows)"
    parser.add_argument("--long", choices=("windows", "refuse"), default="windows", help=long)
    parser.add_argument("--field", metavar="NAME", default="text", help="of JSON lines, with the text (default text)")
    parser.add_argument("--workers", metavar="N", type=int, help="processes of Ray (default: this one, without Ray)")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="such as cuda (default cpu)")
    add_step_argument(parser)
    parser.add_argument("--trust-code", action="store_true", help="run the code outside tokenfree that RUN names")


def run(args: argparse.Namespace) -> int:
    """Write the vectors with one live line, then print what there is.

    Raises:
        UserError: options do not fit together, or see `tokenfree.train.inference.embed.embed`.
    """
    from tokenfree.train.inference.embed import embed
    from tokenfree.train.inference.vectors import Wanted
    from tokenfree.workflows.terminal.progress import EmbeddingLine, counted
    from tokenfree.workflows.terminal.results import next_command

    if args.workers is not None and args.workers < 1:
        raise UserError(f"--workers {args.workers}: give at least 1")
    if args.pooling is not None and args.vectors != "texts":
        raise UserError(f"--pooling {args.pooling}: is for --vectors texts, not {args.vectors}; leave it out")
    wanted = Wanted(args.vectors, args.pooling or "mean", args.long == "windows")
    with EmbeddingLine(verbosity=args.verbosity) as line:
        result = embed(
            args.run_folder,
            args.source,
            args.output,
            wanted=wanted,
            field=args.field,
            workers=args.workers,
            step=args.step,
            device=args.device,
            trust_code=args.trust_code,
            progress=line,
        )
    if result.already_complete:
        print(f"{args.output}: already complete; nothing to do")
    windowed = f" in {result.windows:,} windows" if result.windows > result.texts else ""
    print(
        f"{counted(result.vectors, 'vector')} of width {result.width:,}, of {counted(result.texts, 'text')}{windowed} "
        f"with {counted(result.characters, 'character')}, in {counted(result.shards, 'shard')}"
    )
    print(f"  {'step':<12}{result.step:,}")
    print(f"  {'vectors':<12}{args.output}")
    print(next_command("verify", args.output))
    return 0
