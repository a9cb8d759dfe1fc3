"""Check every hash and every invariant of a data directory.

Exit status 1 names the first broken shard and row.

Example:
  tokenfree verify data/en
"""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR`."""
    parser.add_argument("directory", metavar="DIR", help="a data directory made by `tokenfree preprocess`")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Verify, and say how much was found good."""
    from tokenfree.preprocess.common.errors import JobError
    from tokenfree.preprocess.dataset.manifest import load_manifest
    from tokenfree.preprocess.dataset.verify import verify
    from tokenfree.workflows.terminal.next_command import next_command

    manifest = load_manifest(args.directory)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    windows, characters = sum(shard.rows for shard in shards), sum(shard.characters for shard in shards)
    try:
        verify(args.directory)
    except JobError as error:
        if not args.json:
            raise
        print(json.dumps({"good": False, "problem": str(error)}))
        return 1
    if args.json:
        print(json.dumps({"good": True, "shards": len(shards), "windows": windows, "characters": characters}))
    else:
        print(f"{args.directory}: good: {len(shards)} shards, {windows:,} windows, {characters:,} characters")
        print(next_command("pretrain", "canine-s-tiny", "--data", args.directory, "--output", "runs/first"))
    return 0
