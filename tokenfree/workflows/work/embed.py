"""Do the work of `tokenfree embed`."""

import argparse

from tokenfree.train.inference.embed import Wanted, embed
from tokenfree.workflows.terminal.progress import EmbeddingLine
from tokenfree.workflows.terminal.results import counted


def run(args: argparse.Namespace) -> None:
    options = Wanted(args.vectors, args.pooling or "mean", args.long == "windows")
    with EmbeddingLine(verbosity=args.verbosity) as line:
        result = embed(
            args.run_folder,
            args.source,
            args.output,
            wanted=options,
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
