"""What rounds begin with and compare with: inputs, and a data directory, runs and a sweep that nothing has disturbed.

They are made once for a version of the code, and copied by rounds.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import json
import lzma
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.fuzz.commands import ROOT, Outcome, run
from benchmarks.fuzz.functions import seed_pages
from benchmarks.fuzz.judges import losses, result, shards

WORDS = (
    "the rain falls on quiet hills and old boats while seven geese argue about bread",
    "дощ падає на тихі пагорби поки сім гусей сперечаються про хліб і човни",
    "雨 が 静か な 丘 に 降り 七羽 の 雁 は パン を 論じる",
)
PREPROCESS = (
    "--vocabulary.size", "560", "--vocabulary.sample_characters", "20000", "--vocabulary.character_coverage", "0.98",
    "--window.max_characters", "64", "--split_bytes", "6000", "--shard_characters", "9000", "--validation_fraction",
    "0.2",
)  # fmt: skip
BOOKS = ("--books", "inputs/books.jsonl", "inputs/book.txt")
DUMPS = ("--wikipedia", "inputs/swwiki-x-pages-articles-multistream.xml.bz2")
HEAD = b'<mediawiki version="0.11" xml:lang="sw"><siteinfo><dbname>swwiki</dbname></siteinfo>\n'
TAIL = b"</mediawiki>\n"
PAGES = 8
TRAIN = {
    "steps": 12, "global_batch": 8, "length": 64, "learning_rate": 0.01, "streams": 2, "checkpoint_every_steps": 3,
    "checkpoint_every_seconds": None, "validate_every_steps": 4, "validation_windows": 8, "threads": 1,
}  # fmt: skip
TRUNK = {"layers": 1, "heads": 2, "inner_width": 32, "dropout": 0.1}
HASHED = {"width": 16, "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 64}, "trunk": TRUNK}
SUBWORDS = {
    "embedder": {"name": "subword_table", "size": 600}, "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
}  # fmt: skip
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "canine": {"model": HASHED, "train": TRAIN},
    "averaged": {"model": HASHED, "train": {**TRAIN, "ema_decay": 0.9, "keep_checkpoints": 3, "steps": 9}},
    "bert": {"model": {**HASHED, **SUBWORDS}, "objective": {"name": "masked_subwords"}, "train": TRAIN},
}
SWEEP = {
    "base": {"model": HASHED, "train": {**TRAIN, "steps": 4}},
    "space": {"model.embedder.buckets": {"choice": [32, 64]}, "train.learning_rate": {"log_uniform": [0.001, 0.1]}},
    "trials": 3, "budget": {"steps": 4}, "reports": 2,
}  # fmt: skip


class Originals:
    """Inputs and undisturbed folders below `work`, each made when it is first asked for."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "originals" / version()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._losses: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}

    @functools.cached_property
    def inputs(self) -> Path:
        """A folder of dumps, books and recipes, each small."""
        folder = self.folder / "inputs"
        if not folder.exists():
            _whole(folder, write_inputs)
        return folder

    @functools.cached_property
    def data(self) -> Path:
        """A data directory of the books and of a dump."""
        return self._made("data", ("preprocess", *BOOKS, *DUMPS, "--output", "data", *PREPROCESS), "manifest.json")

    @functools.cached_property
    def shards(self) -> dict[str, bytes]:
        """Its bytes."""
        return shards(self.data)

    def run(self, recipe: str) -> Path:
        """A finished run of one of `RECIPES`."""
        _ = self.data
        command = ("pretrain", f"inputs/{recipe}.yaml", "--data", "data", "--output", f"run-{recipe}")
        return self._made(f"run-{recipe}", command, "result.json")

    def losses(self, recipe: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The lines of its metrics without times, and its result."""
        if recipe not in self._losses:
            self._losses[recipe] = losses(self.run(recipe)), result(self.run(recipe))
        return self._losses[recipe]

    @functools.cached_property
    def sweep(self) -> Path:
        """A finished sweep of three trials."""
        _ = self.data
        command = ("sweep", "inputs/sweep.yaml", "--data", "data", "--output", "sweep")
        return self._made("sweep", command, "sweep.csv", is_fresh=True)

    def changes(self, name: str) -> int:
        """How often the command that made `name` changed files and names."""
        return int(self._told(name)["changes"])

    def seconds(self, name: str) -> float:
        """The seconds that it took."""
        return float(self._told(name)["seconds"])

    def _told(self, name: str) -> dict[str, Any]:
        _ = self.run(name.removeprefix("run-")) if name.startswith("run-") else getattr(self, name)
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def _made(self, name: str, command: tuple[str, ...], last: str, *, is_fresh: bool = False) -> Path:
        folder = self.folder / name
        _ = self.inputs
        if not (self.folder / f"{name}.json").exists() or not (folder / last).exists():
            shutil.rmtree(folder, ignore_errors=True)
            logs = self.folder / f"logs-{name}"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            outcome = run(command, folder=self.folder, logs=logs, is_fresh=is_fresh, limit=900)
            _check(outcome, command)
            facts = {"changes": outcome.changes, "seconds": outcome.seconds}
            (self.folder / f"{name}.json").write_text(json.dumps(facts), encoding="utf-8")
        return folder


def version() -> str:
    """Of the code and of what is made here: a hash."""
    digest = hashlib.sha256()
    files = [file for name in ("preprocess", "pipelines", "train", "workflows") for file in (ROOT / name).rglob("*.py")]
    for file in [*sorted(files), Path(__file__)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def write_inputs(folder: Path) -> None:
    """Books in each format, dumps in each compression, recipes."""
    draw = random.Random(0)
    rows = [{"id": f"d{number}", "language": "en", "text": _text(number, draw)} for number in range(40)]
    rows[19] = {**rows[18], "id": "d19"}
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "books.jsonl").write_text(lines, encoding="utf-8")
    (folder / "book.txt").write_text(_text(1, draw) + "\n\n" + _text(2, draw), encoding="utf-8")
    table = pa.table({key: [row[key] for row in rows] for key in ("id", "language", "text")})
    pq.write_table(table, folder / "books.parquet", row_group_size=10)
    pages = _pages()
    dump = HEAD + b"".join(pages) + TAIL
    (folder / "swwiki-x-pages-articles.xml").write_bytes(dump)
    for suffix, pack in (("bz2", bz2.compress), ("gz", _gzip), ("xz", lzma.compress)):
        (folder / f"swwiki-{suffix}-pages-articles.xml.{suffix}").write_bytes(pack(dump))
    streams = (HEAD, *(b"".join(pages[start : start + 3]) for start in range(0, PAGES, 3)), TAIL)
    (folder / "swwiki-x-pages-articles-multistream.xml.bz2").write_bytes(b"".join(map(bz2.compress, streams)))
    for name, recipe in (*RECIPES.items(), ("sweep", SWEEP)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(dict(recipe), sort_keys=False), encoding="utf-8")


def _pages() -> list[bytes]:
    """Pages of the demo corpus of at most 4 kB, the bigger ones of them."""
    return [page for page in seed_pages([]) if len(page) < 4000][-PAGES:]


def _text(number: int, draw: random.Random) -> str:
    words = WORDS[number % len(WORDS)].split()
    return " ".join(" ".join(draw.choices(words, k=8)) + "." for _ in range(draw.randint(3, 30)))


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _whole(folder: Path, write: Any) -> None:
    """Fill a new folder, which shows under its name when it is whole."""
    begun = folder.with_name(f"{folder.name}-begun")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir()
    write(begun)
    begun.rename(folder)


def _check(outcome: Outcome, command: tuple[str, ...]) -> None:
    if outcome.status != 0:
        raise RuntimeError(f"tokenfree {' '.join(command)}: status {outcome.status}: {outcome.err[-500:]}")
