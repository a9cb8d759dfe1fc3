"""Show what a data directory holds: counts, columns, and a few windows with words, subwords and masks marked.

Words and subwords alternate in colour; masked characters are shown as a block, replaced ones are underlined. Where the
output is no terminal, words are parted by `|`, subwords by `·`.

Example:
  tokenfree inspect data/en --sample 2
"""

import argparse

from tokenfree.preprocess.common.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR [--sample N]`."""
    parser.add_argument("directory", metavar="DIR", help="a data directory made by `tokenfree preprocess`")
    parser.add_argument("--sample", metavar="N", type=int, default=3, help="windows to show (default 3)")
    parser.add_argument("--width", metavar="N", type=int, default=400, help="characters of each to show (default 400)")


def run(args: argparse.Namespace) -> int:
    """Print tables of counts and columns, then the windows.

    Raises:
        UserError: a number is out of its range, or there is no finished data directory.
    """
    from rich.console import Console

    from tokenfree.preprocess.dataset.manifest import load_manifest
    from tokenfree.workflows.terminal.inspection import columns_table, counts_table, pages_line, show_windows

    if args.sample < 0 or args.width < 1:
        raise UserError("--sample must not be negative and --width must be positive")
    manifest = load_manifest(args.directory)
    console = Console(highlight=False)
    console.print(counts_table(manifest))
    console.print(pages_line(manifest))
    console.print(columns_table(manifest))
    show_windows(console, args.directory, manifest, num_windows=args.sample, width=args.width)
    return 0
