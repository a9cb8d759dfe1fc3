"""Do the work of `tokenfree replay`."""

import argparse

from tokenfree.preprocess.job.finish import replay
from tokenfree.workflows.terminal.results import counted, next_command


def run(args: argparse.Namespace) -> None:
    result = replay(args.directory)
    if not result.tried:
        print(f"{args.directory}: no page of this job failed; there is nothing to try again")
        return
    failing = result.tried - result.documents
    print(
        f"{counted(result.tried, 'failed page')} tried again: {result.documents:,} succeed now, {failing:,} do not"
    )
    for reason, count in result.still_failing.items():
        print(f"  still       {count:,} {reason}")
    if result.path:
        print(f"  written to  {result.path}")
        print(next_command("preprocess", "--books", str(result.path), "--output", "NEW_DIRECTORY"))
    else:
        print(f"  raw text    {args.directory}/failures: fix the input there, or leave these pages out")
