"""Do the work of `tokenfree verify`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.workflows.terminal.results import counted, next_command

if TYPE_CHECKING:
    from tokenfree.train.runs.hashes import VerifiedFolder


def run(args: argparse.Namespace) -> int:
    names = Storage.at(args.directory).names()
    try:
        summary, lines = _verified(args.directory, names)
    except JobError as error:
        if not args.json:
            raise
        print(json.dumps({"good": False, "problem": str(error)}))
        return 1
    print(json.dumps({"good": True, **summary}) if args.json else "\n".join(lines))
    return 0


def _verified(directory: str, names: list[str]) -> tuple[Mapping[str, Any], list[str]]:
    # On machines without torch, only data directories can be checked.
    if MANIFEST not in names:
        from tokenfree.train.inference import folder
        from tokenfree.train.runs import hashes

        if folder.is_vectors_folder(names):
            return _vectors(directory, folder.verify(directory))
        if hashes.is_results_folder(names):
            return _results(directory, hashes.verify_folder(directory))
    return _data(directory)


def _data(directory: str) -> tuple[Mapping[str, Any], list[str]]:
    unhashed = verify(directory)
    manifest = load_manifest(directory)
    shards = manifest.shards
    windows, characters = sum(shard.rows for shard in shards), sum(shard.characters for shard in shards)
    summary = {"shards": len(shards), "windows": windows, "characters": characters, "unhashed": unhashed}
    counts = ", ".join(
        (counted(len(shards), "shard"), counted(windows, "window"), counted(characters, "character"))
    )
    train = next_command("pretrain", "canine-fast-tiny", "--data", directory, "--output", "runs/first")
    return summary, [
        f"{directory}: good: {counts}",
        *_unhashed_line(unhashed),
        *([train] if ("validation" in manifest.splits) else []),
    ]


def _results(directory: str, verified: "VerifiedFolder") -> tuple[Mapping[str, Any], list[str]]:
    summary = {
        "complete": verified.complete,
        "checkpoints": verified.checkpoints,
        "unhashed": verified.unhashed,
    }
    state = "complete" if verified.complete else "not complete"
    line = f"{directory}: good: {state}, {counted(len(verified.checkpoints), 'checkpoint')}"
    return summary, [line, *_unhashed_line(verified.unhashed if verified.complete else ())]


def _vectors(directory: str, manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    summary = {"shards": len(manifest["shards"]), "texts": manifest["texts"], "vectors": manifest["vectors"]}
    counts = ", ".join(counted(number, noun.removesuffix("s")) for noun, number in summary.items())
    return summary, [f"{directory}: good: {counts}", next_command("inspect", directory)]


def _unhashed_line(names: Sequence[str]) -> list[str]:
    text = ", ".join(name if name.isprintable() else repr(name) for name in names)
    return [f"  unhashed    {text} (put there later)"] if names else []
