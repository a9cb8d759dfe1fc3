"""Features of windows compared with the code of an expert user of NumPy, SentencePiece and `re`, on the same text.

    python -m benchmarks.preprocess.features [--vocabulary 16000] [--megabytes 4] [FILE ...]

It prints megabytes of text (UTF-8) per CPU second on one core of both, and their ratio: the best of three
rounds in turn. The peer is what one writes in a batched `datasets.map`: NumPy columns, a regular expression
for words, and the offsets that SentencePiece computes in C++. A faster peer sums the lengths of the pieces
instead. Without FILEs, the texts are the books and
human rights declarations of the test data.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.preprocess.peer_columns import (
    peer_columns,
    peer_subwords,
    peer_words,
    piece_lengths,
    summed_subwords,
)
from benchmarks.timing import in_turn
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.text.normalize import normalize
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.words import word_spans
from tools.wiki_pages import data_folder


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
    lengths = piece_lengths(processor)
    raw = _take(raw, megabytes)
    texts = [normalize(text) for text in raw]
    documents = [Document(str(index), "und", "", text) for index, text in enumerate(texts)]
    config = PreprocessConfig()
    parts = iterate_windows(documents, config, None)
    windows = [text for part in parts for text in part.rows["text"].to_pylist()]
    size = sum(len(text.encode()) for text in texts) / 1e6
    rows: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "subwords with offsets": (
            lambda: vocabulary.encode_flat(windows),
            lambda: peer_subwords(processor, windows),
        ),
        "the same, summed lengths": (
            lambda: vocabulary.encode_flat(windows),
            lambda: summed_subwords(processor, lengths, windows),
        ),
        "words": (lambda: word_spans("\n".join(windows)), lambda: peer_words(windows)),
        "all columns": (
            lambda: list(iterate_windows(documents, config, vocabulary)),
            lambda: peer_columns(windows, peer_subwords(processor, windows)),
        ),
        "the same, summed lengths ": (
            lambda: list(iterate_windows(documents, config, vocabulary)),
            lambda: peer_columns(windows, summed_subwords(processor, lengths, windows)),
        ),
        "sentences": (lambda: [sentence_starts(text) for text in texts], None),
        "normalize": (lambda: [normalize(text) for text in raw], None),
        "subword ids alone": (lambda: processor.encode(windows, return_type="numpy"), None),
    }
    print(f"{size:.2f} MB, {len(windows)} windows, {vocabulary.size} subwords; MB per CPU second")
    print(f"{'':24}{'ours':>8}{'peer':>8}{'ratio':>8}")
    for name, (ours, peer) in rows.items():
        seconds = in_turn({"ours": ours, **({"peer": peer} if peer else {})}, rounds=3)
        speeds = {side: size / min(values) for side, values in seconds.items()}
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
