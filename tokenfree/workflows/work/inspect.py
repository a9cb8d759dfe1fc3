"""Do the work of `tokenfree inspect`."""

import argparse
import dataclasses
import json

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.workflows.terminal import inspection
from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.terminal.results import next_command


def run(args: argparse.Namespace) -> int:
    """Print counts and columns, then windows.

    Raises UserError for a number out of range or an unfinished folder.
    """
    if args.sample < 0 or args.width < 1:
        raise UserError("--sample must not be negative and --width must be positive")
    names = Storage.at(args.directory).names()
    # On machines without torch, only data directories can be shown.
    if MANIFEST not in names:
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
    summary = inspection.described(args.directory, num_texts=args.sample, width=args.width)
    if args.json:
        print(json.dumps(summary, ensure_ascii=False))
        return 0
    print("\n".join([*inspection.embedding_lines(summary), "", next_command("verify", args.directory)]))
    return 0
