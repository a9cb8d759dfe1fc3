"""The sets of examples, each split into training, development and test parts, and the text for pretraining.

Parts are fixed: the part of an example depends on the SHA-256 of its text (for a pair, its first text), so
repeated texts share a part. If a set has a test file, a tenth of its training file becomes development. If it
has only one file, a tenth becomes development, two tenths become test, and the rest is training.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Example = dict[str, Any]
PARTS = ("train", "dev", "test")
NAMES, TEXTS, PAIRS = "names", "texts", "pairs"
LANGUAGES = {
    "amh": "Amharic",
    "hau": "Hausa",
    "ibo": "Igbo",
    "kin": "Kinyarwanda",
    "swa": "Swahili",
    "wol": "Wolof",
}
DOMAINS = (
    *("MR", "baby", "books", "camera_photo", "dvd", "electronics", "imdb", "kitchen_housewares"),
    *("magazines", "music", "software", "video"),
)


@dataclass(frozen=True)
class Set:
    """One set of examples.

    Attributes:
        label: Name in tables.
        kind: `NAMES`, `TEXTS` or `PAIRS`.
        read: Function from a file to its examples.
        train: Files that are split, relative to the folder of inputs.
        dev, test: Separate files of these parts, if any.
    """

    label: str
    kind: str
    read: Callable[[Path], list[Example]]
    train: tuple[str, ...]
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


def _words(word: int, tag: int, comments: str = "") -> Callable[[Path], list[Example]]:
    """Return a reader of files with one word per line, given the columns of the word and its tag."""

    def read(file: Path) -> list[Example]:
        found = []
        for sentence in re.split(r"\n[ \t]*\n", _text(file)):
            rows = [line.split() for line in sentence.split("\n") if line.strip()]
            rows = [row for row in rows if len(row) > tag and row[0] != comments]
            if rows:
                found.append({"tokens": [row[word] for row in rows], "ner_tags": [row[tag] for row in rows]})
        return found

    return read


def _labelled(file: Path) -> list[Example]:
    """Read SST and MTL-16: a label, a space or tab, and the text."""
    lines = [re.split(r"[ \t]", line, maxsplit=1) for line in _text(file).split("\n") if line.strip()]
    domain = {"domain": file.name.split(".")[0]} if ".task." in file.name else {}
    return [
        {"text": line[1].strip(), "label": line[0], **domain}
        for line in lines
        if line[1:] and line[1].strip()
    ]


def _wisesight(file: Path) -> list[Example]:
    rows = map(json.loads, filter(str.strip, _text(file).split("\n")))
    return [{"text": row["texts"], "label": row["category"]} for row in rows if row["texts"].strip()]


def _snli(file: Path) -> list[Example]:
    columns = [_text(file.with_name(f"{column}.dev")).splitlines() for column in ("s1", "s2", "labels")]
    return [
        dict(zip(("sentence1", "sentence2", "label"), row, strict=True)) for row in zip(*columns, strict=True)
    ]


def _xnli(file: Path) -> list[Example]:
    head, *rows = [line.split("\t") for line in _text(file).splitlines()]
    columns = [{"gold_label": "label"}.get(name, name) for name in head]
    return [dict(zip(columns, cells, strict=True)) for cells in rows]


def _text(file: Path) -> str:
    """Return the text of a file. A line that is not UTF-8 is read as Windows-1252, as MTL-16 needs."""
    lines = []
    for line in file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            lines.append(line.decode("cp1252", errors="replace"))
    return "\n".join(lines).replace("\r", "")


def _masakhaner(code: str) -> Set:
    files = [f"masakhaner/{code}/{part}.txt" for part in PARTS]
    return Set(f"MasakhaNER {LANGUAGES[code]}", NAMES, _words(0, -1), (files[0],), (files[1],), (files[2],))


def _sst(label: str, name: str) -> Set:
    return Set(label, TEXTS, _labelled, (f"sst/stsa.{name}.train",), test=(f"sst/stsa.{name}.dev",))


SETS = {
    **{code: _masakhaner(code) for code in LANGUAGES},
    "ewt": Set("Universal NER EWT", NAMES, _words(1, 2, "#"), ("ner-uner-english-ewt/en_ewt-ud-dev.iob2",)),
    "germeval": Set("GermEval 2014", NAMES, _words(1, 2, "#"), ("ner-germeval2014/NER-de-dev.tsv",)),
    "wnut": Set("WNUT 2017", NAMES, _words(0, 1), ("ner-wnut17/emerging.dev.conll",)),
    "sst2": _sst("SST-2", "binary"),
    "sst5": _sst("SST-5", "fine"),
    "mtl": Set(
        "MTL-16, 12 domains",
        TEXTS,
        _labelled,
        tuple(f"mtl-16/{domain}.task.train" for domain in DOMAINS),
        test=tuple(f"mtl-16/{domain}.task.test" for domain in DOMAINS),
    ),
    "wisesight": Set("Wisesight (Thai)", TEXTS, _wisesight, ("wisesight-thai/valid.jsonl",)),
    "snli": Set("SNLI", PAIRS, _snli, ("snli/labels.dev",)),
    "xnli-ko": Set("XNLI (Korean)", PAIRS, _xnli, ("xnli-ko/xnli.dev.ko.tsv",)),
}

# Pretraining text. "text" leaves out the large excerpts of bn, ja, ltg, uk, vi and zh: no set is in these
# languages.
_PACKED = ("--window.pack", "across_documents", "--filters.min_characters", "16")
_ENGLISH = (
    "enwiki-2016-shortened.xml.bz2",
    "enwiki-table-markup.xml.bz2",
    "simplewiki-excerpt.xml",
    "minidumps",
)
_OTHERS = ("aawiki*", "bnwiki*", "jawiki*", "ltgwiki*", "ukwiki*", "viwiki*", "zhwiki*")
_BOOKS = ("books", "books-gutenberg/[def][enr]_*.txt")
CORPORA = {  # dumps, books and options
    "text": (_ENGLISH, _BOOKS, ("--vocabulary.size", "4000", "--window.max_characters", "236", *_PACKED)),
    "all": (
        (*_ENGLISH, *_OTHERS),
        (*_BOOKS, "books-gutenberg/zh_*.txt"),
        ("--vocabulary.size", "8000", "--window.max_characters", "508", *_PACKED),
    ),
}


def path(folder: Path, name: str, part: str) -> Path:
    """Return the file of one part of a set."""
    return folder / name / f"{part}.jsonl"


def examples(folder: Path, name: str, part: str) -> list[Example]:
    """Return the examples of one part, which `make_set` wrote."""
    return read(path(folder, name, part))


def read(file: Path) -> list[Example]:
    """Return the lines of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def make_set(inputs: Path, folder: Path, name: str) -> None:
    """Write the three parts of a set as JSON lines, unless they exist."""
    if path(folder, name, "test").exists():
        return
    for part, found in parts(inputs, SETS[name]).items():  # test comes last and marks a finished set
        file = path(folder, name, part)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(
            "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found), encoding="utf-8"
        )
        new.rename(file)


def parts(inputs: Path, source: Set) -> dict[str, list[Example]]:
    """Return the examples of each part, in the order of the files."""
    own = {"dev": source.dev, "test": source.test}
    found = {part: _read(inputs, source, own.get(part, ())) for part in PARTS}
    tenths = [part for part in ("dev", "test", "test") if not own[part]]
    for example in _read(inputs, source, source.train):
        found[part_of(key(example), tenths)].append(example)
    return found


def part_of(text: str, tenths: Sequence[str]) -> str:
    """Return the part of an example: each entry of `tenths` receives a tenth of all texts, training the rest."""
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
    return tenths[tenth] if tenth < len(tenths) else "train"


def key(example: Example) -> str:
    """Return the text that decides on the part of an example."""
    if "tokens" in example:
        return " ".join(example["tokens"])
    return example.get("text") or example["sentence1"]


def _read(inputs: Path, source: Set, files: Sequence[str]) -> list[Example]:
    return [example for file in files for example in source.read(inputs / file)]


def corpus_arguments(inputs: Path, folder: Path, name: str) -> list[str]:
    """Return the arguments of `tokenfree` that make a pretraining corpus, and write the reviews that it reads."""
    reviews = folder / f"{name}-reviews.jsonl"
    reviews.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        json.dumps({"id": f"{number}", "text": text, "language": "en"})
        for number, text in enumerate(_reviews(inputs))
    )
    reviews.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    dumps, books, options = CORPORA[name]
    return [
        *("preprocess", "--wikipedia", *(str(inputs / "wiki-dumps" / dump) for dump in dumps)),
        *("--books", *(str(inputs / book) for book in books), str(reviews)),
        *("--output", str(folder / name), "--workers", "1", *options),
    ]


def _reviews(inputs: Path) -> Iterator[str]:
    """Yield the training texts of MTL-16 and SST that are not in a development or test part of any set of texts.

    SST's sentences are from the same reviews as MTL-16's domain MR, so each is compared with the parts of
    both.
    """
    made = [parts(inputs, SETS[name]) for name in ("mtl", "sst5", "sst2")]
    held_out = {_letters(key(each)) for found in made for part in ("dev", "test") for each in found[part]}
    seen = set(held_out)
    for found in made:
        for example in found["train"]:
            letters = _letters(text := key(example))
            if letters not in seen:
                seen.add(letters)
                yield text


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))
