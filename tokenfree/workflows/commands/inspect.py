"""Show what a data directory or a folder of embeddings holds: counts, columns, and a few windows or texts.

`|` separates words and `·` subwords. Masked characters are shown as blocks, replaced ones are underlined. A
run of characters that the vocabulary lacks is one subword in `<>`.

Examples:
  tokenfree inspect data/en --sample 2
  tokenfree inspect vectors/texts
"""

import argparse
import dataclasses
import json

from tokenfree.core.errors import UserError
from tokenfree.workflows.terminal.results import next_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the --output of `tokenfree preprocess` or `embed`")
    parser.add_argument(
        "--sample", metavar="N", type=int, default=3, help="windows or texts to show (default 3)"
    )
    parser.add_argument(
        "--width", metavar="N", type=int, default=400, help="characters of each to show (default 400)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print counts and columns, then windows.

    Raises UserError for a number out of range or an unfinished folder.
    """
    from tokenfree.core.storage import Storage
    from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
    from tokenfree.workflows.terminal import inspection
    from tokenfree.workflows.terminal.progress import console

    if args.sample < 0 or args.width < 1:
        raise UserError("--sample must not be negative and --width must be positive")
    names = Storage.at(args.directory).names()
    if MANIFEST not in names:  # on machines without torch, only data directories can be shown
        from tokenfree.train.inference.folder import is_vectors_folder

        if is_vectors_folder(names):
            return _vectors(args)
    manifest = load_manifest(args.directory)
    windows = inspection.windows(args.directory, manifest, num_windows=args.sample, width=args.width)
    if args.json:
        summary = {
            "counts": list(inspection.counts(manifest)),
            "pages": manifest.counters,
            "columns": inspection.columns(manifest),
            "windows": [dataclasses.asdict(window) for window in windows],
        }
        print(json.dumps(summary, ensure_ascii=False))
        return 0
    out = console()
    out.print(inspection.counts_table(manifest))
    out.print(inspection.pages_line(manifest))
    out.print(inspection.columns_table(manifest))
    for window in windows:
        inspection.show_window(out, window)
    out.print(f"\n{next_command('verify', args.directory)}")
    return 0


def _vectors(args: argparse.Namespace) -> int:
    from tokenfree.workflows.terminal import inspection

    summary = inspection.described(args.directory, num_texts=args.sample, width=args.width)
    if args.json:
        print(json.dumps(summary, ensure_ascii=False))
        return 0
    print("\n".join([*inspection.embedding_lines(summary), "", next_command("verify", args.directory)]))
    return 0
