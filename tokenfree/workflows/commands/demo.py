"""Run the whole path on this machine, in minutes: text, shards, pretraining, sweep, report.

Without --dump it writes a small corpus of its own (a MediaWiki export in many languages, and books). The same command
goes on where it was stopped.

Examples:
  tokenfree demo
  tokenfree demo --dump enwiki-latest-pages-articles1.xml.bz2 --output demo-en
"""

import argparse

from tokenfree.core.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[--dump PATH] [--output DIR]`."""
    parser.add_argument("--dump", metavar="PATH", help="a Wikipedia dump to use in place of the demo's own corpus")
    parser.add_argument("--output", metavar="DIR", default="demo", help="where everything is written (default: demo)")
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="training processes (default 2)")


def run(args: argparse.Namespace) -> int:
    """Run the stages and print what was made.

    Raises:
        UserError: there is no worker, or a stage cannot use the dump or the folder.
    """
    from tokenfree.workflows.demo import run_demo

    if args.workers < 1:
        raise UserError("--workers must be at least 1")
    run_demo(args.output, dump=args.dump, workers=args.workers, verbosity=args.verbosity)
    return 0
