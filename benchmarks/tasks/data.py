"""The examples of the queue: each set in a train, a dev and a test part, made once from the files as published.

Where a set has a test file, that is the test. Of the other files, every example goes to a part by a number that is made
of its own content: an example that stands twice is in one part, and neither order nor seed change anything. The pairs
of SNLI that share a premise stay together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import lock, write_atomically

VARIABLE = "TOKENFREE_TEST_DATA"
Part = Literal["train", "dev", "test"]
Kind = Literal["texts", "pairs", "names"]
PARTS: tuple[Part, ...] = get_args(Part)
TENTHS: tuple[Part, ...] = ("dev", "test", "test")  # of a set without such files; the rest is trained on
PAIR = ("s1", "s2", "labels")


@dataclass(frozen=True)
class Source:
    """Where a set comes from, relative to the folder of the inputs.

    Attributes:
        label: what tables call it.
        kind: `texts`, an example a line; `pairs`, three files line by line; `names`, examples between empty lines.
        train: its file, or those of a pair; the other parts are taken from it where they have no file.
        dev, test: files of their own.
        name: of the files that are made, with PART for the part: it tells the format.
    """

    label: str
    kind: Kind
    train: tuple[str, ...]
    name: str
    dev: str | None = None
    test: str | None = None


def _mtl(domain: str) -> Source:
    train, test = (f"mtl-16/{domain}.task.{part}" for part in ("train", "test"))
    return Source(f"MTL-16 {domain}", "texts", (train,), f"{domain}.task.PART", test=test)


def _sst(label: str, name: str) -> Source:
    return Source(label, "texts", (f"sst/stsa.{name}.train",), f"stsa.{name}.PART", test=f"sst/stsa.{name}.dev")


def _masakhaner(label: str, code: str) -> Source:
    train, dev, test = (f"masakhaner/{code}/{part}.txt" for part in PARTS)
    return Source(f"MasakhaNER {label}", "names", (train,), "PART.txt", dev=dev, test=test)


SOURCES = {
    "sst5": _sst("SST-5", "fine"),
    "sst2": _sst("SST-2", "binary"),
    **{domain.lower(): _mtl(domain) for domain in ("MR", "books", "electronics", "imdb")},
    "wisesight": Source("Wisesight, Thai", "texts", ("wisesight-thai/valid.jsonl",), "PART.jsonl"),
    "swa": _masakhaner("Swahili", "swa"),
    "amh": _masakhaner("Amharic", "amh"),
    "ewt": Source("Universal NER English", "names", ("ner-uner-english-ewt/en_ewt-ud-dev.iob2",), "PART.iob2"),
    "snli": Source("SNLI", "pairs", tuple(f"snli/{name}.dev" for name in ("s1", "s2", "labels")), "PART"),
}


def path(folder: Path | str, name: str, part: Part) -> str:
    """What `tokenfree finetune --PART` reads: a file, or what the three files of pairs have in common."""
    return f"{folder}/{name}/{SOURCES[name].name.replace('PART', part)}"


def prepare(folder: Path, names: Sequence[str]) -> None:
    """Make the parts of those sets that `folder` lacks. Several commands may do so at once.

    Raises:
        UserError: the inputs are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with lock(folder / f"{name}.lock"):
            if not (folder / name / "done").exists():
                _make(folder, name, _inputs(SOURCES[name]))
                write_atomically(folder / name / "done", "")


def part_of(content: bytes, parts: Sequence[Part]) -> Part:
    """The part that an example belongs to: a tenth of all to each of `parts`, the rest to train."""
    tenth = int.from_bytes(hashlib.sha256(content).digest()[:8], "big") % 10
    return parts[tenth] if tenth < len(parts) else "train"


def _make(folder: Path, name: str, inputs: Path) -> None:
    source = SOURCES[name]
    whole = [_examples(inputs / file, source.kind) for file in source.train]
    given: dict[Part, str | None] = {"dev": source.dev, "test": source.test}
    own = {part: file for part, file in given.items() if file is not None}
    taken: list[Part] = [part for part in TENTHS if part not in own]
    parts = [part_of(_key(source.kind, example), taken) for example in whole[0]]
    for part in PARTS:
        made = [[example for example, its in zip(examples, parts, strict=True) if its == part] for examples in whole]
        if part in own:
            made = [_examples(inputs / own[part], source.kind)]
        for file, examples in zip(_files(folder, name, part), made, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"".join(examples))


def _files(folder: Path, name: str, part: Part) -> list[Path]:
    whole = Path(path(folder, name, part))
    return [whole.with_name(f"{each}.{part}") for each in PAIR] if SOURCES[name].kind == "pairs" else [whole]


def _key(kind: Kind, example: bytes) -> bytes:
    """What decides on the part of an example: of a text behind its label the text alone."""
    return example[1:].strip() if kind == "texts" and example[:1].isdigit() else example.strip()


def _examples(file: Path, kind: Kind) -> list[bytes]:
    """The examples of a file as they stand there, each with the end of its last line."""
    end = b"\n\n" if kind == "names" else b"\n"
    pieces = file.read_bytes().replace(b"\r\n", b"\n").split(end)
    return [piece.strip(b"\n") + end for piece in pieces if piece.strip()]


def _inputs(source: Source) -> Path:
    folder = os.environ.get(VARIABLE)
    files = [*source.train, *filter(None, (source.dev, source.test))]
    if not folder:
        raise UserError(f"{VARIABLE} is not set; let it name the folder that has {files[0]}")
    for file in files:
        if not (Path(folder) / file).exists():
            raise UserError(f"{VARIABLE}={folder}: no {file} in it; name the folder that has it")
    return Path(folder)
