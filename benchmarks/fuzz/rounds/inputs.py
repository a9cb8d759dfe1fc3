"""Damaged inputs: dumps, books, recipes and keys, and random text for single functions."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.damage import VALUES, damage_file
from benchmarks.fuzz.functions import failure, mutate, seed_pages, shrink
from benchmarks.fuzz.judges import Finding, expect
from benchmarks.fuzz.originals import PREPROCESS
from benchmarks.fuzz.rounds.context import Round
from benchmarks.fuzz.targets import TARGETS, WIKI_TOKENS, XML_TOKENS, Target, encode_tokens

TRIES = 40  # inputs of a function in a round
KEYS = (
    "train.steps", "train.learning_rate", "train.length", "train.global_batch", "train.streams", "train.micro_batch",
    "train.optimizer.name", "model.width", "model.trunk.layers", "model.trunk.heads", "model.embedder.buckets",
    "model.embedder.name", "model.downsampler.rate", "objective.name", "train.warmup", "train.seed", "train.threads",
    "train.ema_decay", "train.checkpoint_every_seconds", "model.trunk.dropout", "train.smoothing", "train.log_to",
)  # fmt: skip
ODD = (
    ".inf", "-.inf", ".nan", "''", "null", "[]", "{}", "1e400", "99999999999999999999", "-1", "0", "\x1b[2J", "é",
    "true", "{a: b}", "[1", "!!python/name:os.system", "&a [*a]", "2024-01-01", "0x10", "1_000", "🙂", "a\nb",
)  # fmt: skip


def dumps_and_books(round_: Round) -> None:
    """Some inputs are damaged; the job is done or refused, what it did is sound, and the same again changes nothing."""
    inputs = round_.take(round_.originals.inputs)
    dumps = sorted(inputs.glob("swwiki-*"))
    books = sorted(path for path in inputs.glob("book*"))
    chosen = round_.draw.sample(dumps, 1) + round_.draw.sample(books, 1)
    for path in round_.draw.sample(chosen, round_.draw.randint(1, 2)):
        _damage_input(round_, path)
    given = ["--wikipedia", f"inputs/{chosen[0].name}", "--books", f"inputs/{chosen[1].name}"]
    command = ["preprocess", *given, "--output", "data", *PREPROCESS]
    if round_.command(*command).status != 0:
        return
    expect(round_.command("verify", "data").status == 0, "verify refuses what preprocess has just written")
    expect(round_.command(*command).status == 0, "the same command again does not see that all is done")
    round_.command("inspect", "data")
    round_.command("replay", "data")


def recipes(round_: Round) -> None:
    """A damaged recipe, or odd values of keys: trained, or refused in a line (of several problems, a line each)."""
    name = round_.recipe()
    recipe = round_.take(round_.originals.inputs / f"{name}.yaml")
    data = round_.take(round_.originals.data)
    options = []
    if round_.draw.random() < 0.5:
        round_.damage(recipe)
    else:
        for key in round_.draw.sample(KEYS, round_.draw.choice((1, 1, 2))):
            options += [f"--{key}", str(round_.draw.choice((*ODD, *VALUES))).replace("\0", "")]
    kind = round_.draw.choice(("pretrain", "pretrain", "model", "sweep", "preprocess"))
    if not recipe.exists() or kind == "preprocess":
        pairs = zip(options[::2], options[1::2], strict=True)
        options = [part for _, value in pairs for part in (f"--{round_.draw.choice(_PREPROCESS_KEYS)}", value)]
        round_.command("preprocess", "--books", str(round_.originals.inputs / "book.txt"), "--output", "out", *options)
        return
    if kind == "model":
        round_.command("model", str(recipe.name), *options)
    elif kind == "sweep":
        round_.damage(round_.take(round_.originals.inputs / "sweep.yaml"))
        round_.command("sweep", "sweep.yaml", "--data", data.name, "--output", "out", "--dry-run")
    else:
        command = ("pretrain", recipe.name, "--data", data.name, "--output", "out", *options)
        if round_.command(*command, "--dry-run").status == 0:
            round_.story.append(f"in full: {shlex.join(command)}")


def functions(round_: Round) -> None:
    """Random text for a reader, the cleaner, the word splitter or the aligner: see targets.py."""
    name = round_.draw.choice(list(TARGETS))
    target, seeds = _target(name)
    for _ in range(TRIES):
        data = mutate(round_.draw.choice(seeds), seeds, target.tokens, round_.draw)
        place = failure(target.check, data)
        if place is not None:
            small = shrink(target.check, data, place)
            (round_.folder / f"{name}.bin").write_bytes(small)
            raise Finding(f"{name}: {place} with {small[:200]!r}")


def _damage_input(round_: Round, path: Path) -> None:
    """Any damage, or for text the changes that fit its format."""
    if path.suffix in (".xml", ".jsonl", ".txt") and round_.draw.random() < 0.6:
        tokens = (*encode_tokens(XML_TOKENS, "|"), *encode_tokens(WIKI_TOKENS, "¦"), b'"', b"\\u0000", b"\\ud800", b"{")
        before = path.read_bytes()
        path.write_bytes(mutate(before, [before], tokens, round_.draw))
        round_.story.append(f"{path.name}: changed at random, {len(before)} bytes to {path.stat().st_size}")
    else:
        round_.story.append(damage_file(path, round_.draw))


@functools.cache
def _target(name: str) -> tuple[Target, Sequence[bytes]]:
    pages = seed_pages([])
    target = TARGETS[name](pages)
    return target, target.seeds(pages)


_PREPROCESS_KEYS = (
    "vocabulary.size", "window.max_characters", "split_bytes", "shards", "shard_characters", "validation_fraction",
    "vocabulary.character_coverage", "languages", "vocabulary.model", "vocabulary.algorithm", "seed",
)  # fmt: skip
