"""Features of windows compared with plain Python code, on the same text.

    python -m benchmarks.preprocess.features [--vocabulary 16000] [--megabytes 4] [FILE ...]

It prints megabytes of text (UTF-8) per CPU second on one core of both, and their ratio. The plain code is what one
writes in a `datasets.map` function: `ord` and `isspace` for each character, a regular expression for words, and the
protos of SentencePiece for subwords with their offsets. Without FILEs, the texts are the books and human rights
declarations of the test data.
"""

import argparse
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.preprocess.wiki_pages import data_folder
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.features.columns import build_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.text.characters import class_table
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.words import word_spans

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+|[^\w\s]|_")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+")


def plain_words(text: str) -> tuple[list[int], list[int]]:
    """Return the byte spans of words by regular expressions, with camel case only for ASCII."""
    starts, ends = [], []
    characters = position = 0
    for word in _WORD.finditer(text):
        for part in _CAMEL.finditer(word[0]):
            start = word.start() + part.start()
            position += len(text[characters:start].encode())
            starts.append(position)
            position += len(part[0].encode())
            ends.append(position)
            characters = word.start() + part.end()
    return starts, ends


def plain_subwords(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[int, int, int]]:
    """Return (id, start, end) in codepoints of the visible part of each piece, from the proto's byte offsets."""
    at_byte = [index for index, character in enumerate(text) for _ in character.encode()] + [len(text)]
    pieces = []
    for piece in processor.encode(text.replace("\n", " "), return_type="proto").pieces:
        start, end = at_byte[piece.begin], max(at_byte[piece.end], at_byte[piece.begin] + 1)
        surface = piece.surface
        start += len(surface) - len(surface.lstrip())
        if start < end and surface.strip():
            pieces.append((piece.id, start, end))
    return pieces


def plain_row(processor: sentencepiece.SentencePieceProcessor, text: str) -> dict[str, Any]:
    """Return all columns of one window except its sentences."""
    words, subwords = plain_words(text), plain_subwords(processor, text)
    return {
        "codepoints": [ord(character) for character in text],
        "whitespace": [character.isspace() for character in text],
        "words": words,
        "subwords": subwords,
    }


def cpu_seconds(function: Callable[[Any], object], inputs: Sequence[object]) -> float:
    """Return the CPU seconds of the best of three runs over all inputs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        for value in inputs:
            function(value)
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--vocabulary", type=int, default=16_000, help="number of subwords")
    parser.add_argument("--megabytes", type=float, default=4, help="of text that are measured")
    options = parser.parse_args()
    files = options.files or [*data_folder().glob("books/*/*.txt"), *data_folder().glob("udhr/*.txt")]
    raw = [file.read_text(encoding="utf-8") for file in sorted(files)]
    measure(raw, options.vocabulary, options.megabytes)


def measure(raw: list[str], vocabulary_size: int, megabytes: float) -> None:
    """Print the table for these texts."""
    vocabulary = Vocabulary.load(train_vocabulary(map(normalize, raw), VocabularyConfig(size=vocabulary_size), 0))
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    raw = _take(raw, megabytes)
    texts = [normalize(text) for text in raw]
    documents = [Document(str(index), "und", "", text) for index, text in enumerate(texts)]
    config = PreprocessConfig()
    windows = build_windows(documents, config, None)["text"].to_pylist()
    class_table()
    size = sum(len(text.encode()) for text in texts) / 1e6
    rows: list[tuple[str, Callable[[Any], object], Sequence[object], Callable[[str], object] | None]] = [
        ("subwords with offsets", vocabulary.encode_batch, [windows], partial(plain_subwords, processor)),
        ("words", word_spans, windows, plain_words),
        (
            "all columns",
            lambda group: build_windows(group, config, vocabulary),
            [documents],
            partial(plain_row, processor),
        ),
        ("sentences", sentence_starts, texts, None),
        ("normalize", normalize, raw, None),
        ("subword ids alone", lambda group: processor.encode(group, return_type="numpy"), [windows], None),
    ]
    print(f"{size:.2f} MB, {len(windows)} windows, {vocabulary.size} subwords; MB per CPU second")
    print(f"{'':24}{'ours':>8}{'plain':>8}{'ratio':>8}")
    for name, ours, inputs, plain in rows:
        speed = size / cpu_seconds(ours, inputs)
        line = f"{name:24}{speed:8.1f}"
        if plain is not None:
            plain_speed = size / cpu_seconds(plain, windows)
            line += f"{plain_speed:8.1f}{speed / plain_speed:8.1f}"
        print(line, flush=True)


def _take(texts: list[str], megabytes: float) -> list[str]:
    """Return the same share of the beginning of every text, so that all scripts are measured."""
    share = min(1.0, megabytes * 1e6 / sum(len(text.encode()) for text in texts))
    return [text[: int(len(text) * share)] for text in texts]


if __name__ == "__main__":
    main()
