"""Features of windows compared with the code of an expert user of NumPy, SentencePiece and `re`, on the same text.

    python -m benchmarks.preprocess.features [--vocabulary 16000] [--megabytes 4] [FILE ...]

It prints megabytes of text (UTF-8) per CPU second on one core of both, and their ratio: medians of three
rounds in turn. The peer is what one writes in a batched `datasets.map`: NumPy columns, a regular expression
for words, and the offsets that SentencePiece computes in C++. Without FILEs, the texts are the books and
human rights declarations of the test data.
"""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sentencepiece

from benchmarks.timing import in_turn, median
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.features.columns import build_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.words import word_spans
from tools.wiki_pages import data_folder

_WORD = re.compile(r"[\u3400-\u9fff]|[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z\u3400-\u9fff]+|[^\w\s]|_")
_SPACE = np.zeros(0x110000, bool)
_SPACE[[codepoint for codepoint in range(0x3001) if chr(codepoint).isspace()]] = True


def peer_codepoints(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the codepoints of all texts, each followed by a newline, and where each text starts among them."""
    codepoints = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), np.int32)
    return codepoints, np.cumsum([0, *(len(text) + 1 for text in texts)])


def peer_words(texts: Sequence[str]) -> dict[str, pa.Array]:
    """Return the byte spans of words by a regular expression, with camel case only for ASCII."""
    codepoints, bounds = peer_codepoints(texts)
    spans = np.array([word.span() for word in _WORD.finditer("\n".join(texts))]).reshape(-1, 2)
    widths = 1 + (codepoints > 0x7F) + (codepoints > 0x7FF) + (codepoints > 0xFFFF)
    positions = np.append(0, np.cumsum(widths))
    rows = np.searchsorted(spans[:, 0], bounds)
    starts, ends = positions[spans].T - np.repeat(positions[bounds[:-1]], np.diff(rows))
    return {
        "word_starts": as_lists(rows, starts.astype(np.uint16)),
        "word_ends": as_lists(rows, ends.astype(np.uint16)),
    }


def peer_subwords(
    processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str]
) -> dict[str, pa.Array]:
    """Return ids and the spans, in codepoints, of the visible part of each piece."""
    codepoints, bounds = peer_codepoints(texts)
    spaced = [text.replace("\n", " ") for text in texts]
    found = processor.encode(spaced, return_type="offset_mapping", num_threads=1)
    ids = np.concatenate([np.array(row["ids"], np.int32) for row in found])
    starts, ends = np.concatenate([np.array(row["offsets"], np.int64).reshape(-1, 2) for row in found]).T
    rows = np.cumsum([0, *(len(row["ids"]) for row in found)])
    ends = np.maximum(ends, starts + 1)
    starts = starts + _SPACE[codepoints[starts + np.repeat(bounds[:-1], np.diff(rows))]]
    kept = np.flatnonzero(starts < ends)
    rows = np.searchsorted(kept, rows)
    columns = {
        "subword_ids": ids,
        "subword_starts": starts.astype(np.uint16),
        "subword_ends": ends.astype(np.uint16),
    }
    return {name: as_lists(rows, values[kept]) for name, values in columns.items()}


def peer_columns(
    processor: sentencepiece.SentencePieceProcessor, texts: Sequence[str]
) -> dict[str, pa.Array]:
    """Return all columns of windows that follow from their texts, except sentences."""
    codepoints = np.frombuffer("".join(texts).encode("utf-32-le"), np.int32)
    rows = np.cumsum([0, *map(len, texts)])
    columns = {"codepoints": as_lists(rows, codepoints), "whitespace": as_lists(rows, _SPACE[codepoints])}
    return columns | peer_words(texts) | peer_subwords(processor, texts)


def as_lists(rows: np.ndarray, values: np.ndarray) -> pa.Array:
    """Return the list column whose row i is `values[rows[i]:rows[i + 1]]`."""
    return pa.ListArray.from_arrays(pa.array(rows, pa.int32()), pa.array(values))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--vocabulary", type=int, default=16_000, help="number of subwords")
    parser.add_argument("--megabytes", type=float, default=4, help="of text that are measured")
    options = parser.parse_args()
    files = options.files or [*data_folder().glob("books/*/*.txt"), *data_folder().glob("udhr/*.txt")]
    raw = [file.read_text(encoding="utf-8") for file in sorted(files)]
    measure(raw, options.vocabulary, options.megabytes)


def measure(raw: list[str], vocabulary_size: int, megabytes: float) -> None:
    """Print the table for these texts."""
    vocabulary = Vocabulary.load(
        train_vocabulary(map(normalize, raw), VocabularyConfig(size=vocabulary_size), 0)
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    raw = _take(raw, megabytes)
    texts = [normalize(text) for text in raw]
    documents = [Document(str(index), "und", "", text) for index, text in enumerate(texts)]
    config = PreprocessConfig()
    windows = build_windows(documents, config, None)["text"].to_pylist()
    size = sum(len(text.encode()) for text in texts) / 1e6
    rows: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "subwords with offsets": (
            lambda: vocabulary.encode_flat(windows),
            lambda: peer_subwords(processor, windows),
        ),
        "words": (lambda: word_spans("\n".join(windows)), lambda: peer_words(windows)),
        "all columns": (
            lambda: build_windows(documents, config, vocabulary),
            lambda: peer_columns(processor, windows),
        ),
        "sentences": (lambda: [sentence_starts(text) for text in texts], None),
        "normalize": (lambda: [normalize(text) for text in raw], None),
        "subword ids alone": (lambda: processor.encode(windows, return_type="numpy"), None),
    }
    print(f"{size:.2f} MB, {len(windows)} windows, {vocabulary.size} subwords; MB per CPU second")
    print(f"{'':24}{'ours':>8}{'peer':>8}{'ratio':>8}")
    for name, (ours, peer) in rows.items():
        seconds = in_turn({"ours": ours, **({"peer": peer} if peer else {})}, rounds=3)
        speeds = {side: size / median(values) for side, values in seconds.items()}
        line = f"{name:24}{speeds['ours']:8.1f}"
        print(
            line + (f"{speeds['peer']:8.1f}{speeds['ours'] / speeds['peer']:8.1f}" if peer else ""),
            flush=True,
        )


def _take(texts: list[str], megabytes: float) -> list[str]:
    """Return the same share of the beginning of every text, so that all scripts are measured."""
    share = min(1.0, megabytes * 1e6 / sum(len(text.encode()) for text in texts))
    return [text[: int(len(text) * share)] for text in texts]


if __name__ == "__main__":
    main()
