"""Check every hash and invariant of a data directory, or every hash of a run, a sweep, an export or embeddings.

If something is wrong, the exit status is 1, and the message names the first invalid file and the row of a
shard. In a run or sweep that is still training, only the checkpoints are checked.

Examples:
  tokenfree verify data/en
  tokenfree verify runs/first
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenfree.workflows.terminal.results import counted, next_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="a data directory, an export, or the --output of `tokenfree pretrain`, `finetune`, `sweep` or `embed`",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from tokenfree.core.errors import JobError
    from tokenfree.core.storage import Storage
    from tokenfree.preprocess.dataset.manifest import MANIFEST

    names = Storage.at(args.directory).names()
    verified = _verified_data
    if MANIFEST not in names:  # on machines without torch, only data directories can be checked
        from tokenfree.train.inference.folder import is_vectors_folder
        from tokenfree.train.runs.hashes import is_results_folder

        verified = _verified_results if is_results_folder(names) else _verified_data
        verified = _verified_vectors if is_vectors_folder(names) else verified
    try:
        summary, lines = verified(args.directory)
    except JobError as error:
        if not args.json:
            raise
        print(json.dumps({"good": False, "problem": str(error)}))
        return 1
    print(json.dumps({"good": True, **summary}) if args.json else "\n".join(lines))
    return 0


def _verified_data(directory: str) -> tuple[Mapping[str, Any], list[str]]:
    from tokenfree.preprocess.dataset.manifest import load_manifest
    from tokenfree.preprocess.dataset.verify import verify

    unhashed = verify(directory)
    manifest = load_manifest(directory)
    shards = manifest.shards
    windows, characters = sum(shard.rows for shard in shards), sum(shard.characters for shard in shards)
    summary = {"shards": len(shards), "windows": windows, "characters": characters, "unhashed": unhashed}
    counts = ", ".join(
        (counted(len(shards), "shard"), counted(windows, "window"), counted(characters, "character"))
    )
    train = next_command("pretrain", "canine-fast-tiny", "--data", directory, "--output", "runs/first")
    trainable = "validation" in manifest.splits
    return summary, [
        f"{directory}: good: {counts}",
        *_unhashed_line(unhashed),
        *([train] if trainable else []),
    ]


def _verified_results(directory: str) -> tuple[Mapping[str, Any], list[str]]:
    from tokenfree.train.runs.hashes import verify_folder

    verified = verify_folder(directory)
    summary = {
        "complete": verified.complete,
        "checkpoints": verified.checkpoints,
        "unhashed": verified.unhashed,
    }
    state = "complete" if verified.complete else "not complete"
    line = f"{directory}: good: {state}, {counted(len(verified.checkpoints), 'checkpoint')}"
    return summary, [line, *_unhashed_line(verified.unhashed if verified.complete else ())]


def _verified_vectors(directory: str) -> tuple[Mapping[str, Any], list[str]]:
    from tokenfree.train.inference.folder import verify

    manifest = verify(directory)
    summary = {"shards": len(manifest["shards"]), "texts": manifest["texts"], "vectors": manifest["vectors"]}
    counts = ", ".join(counted(number, noun.removesuffix("s")) for noun, number in summary.items())
    return summary, [f"{directory}: good: {counts}", next_command("inspect", directory)]


def _unhashed_line(names: Sequence[str]) -> list[str]:
    """Return a line with the files that no hash covers, which were added later."""
    text = ", ".join(name if name.isprintable() else repr(name) for name in names)
    return [f"  unhashed    {text} (put there later)"] if names else []
