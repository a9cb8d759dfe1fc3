"""Pairs of words from UniMorph files: two of one lemma, and two at random.

Kirov et al., "UniMorph 2.0: Universal Morphology", https://arxiv.org/abs/1810.11101. A line is a lemma, a form and the
features, parted by tabs; later columns and blank lines, which part the lemmas of some languages, are not read.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.analyses.subject.texts import read_lines

_TRIES = 20  # draws of a word of another lemma


class WordPairs(NamedTuple):
    """Pairs of different words, each drawn for a lemma: for each related pair a random one beside it."""

    related: list[tuple[str, str]]  # both of the lemma
    random: list[tuple[str, str]]  # the first of the lemma, the second of another one
    lemmas: np.ndarray  # int64 [pairs]: the number of the lemma


def read_unimorph(path: str) -> dict[str, list[str]]:
    """The different words of each lemma, the lemma itself first: NFC, no other change, in the order of the file.

    What has white space inside is several words, and left out.

    Raises:
        UserError: it cannot be read, or a line has no tab.
    """
    found: dict[str, dict[str, None]] = {}
    for number, line in read_lines(path):
        columns = line.split("\t")
        if len(columns) < 2:
            raise UserError(f"{path}:{number}: no tab; a line of UniMorph is a lemma, a form and its features")
        lemma, form = (unicodedata.normalize("NFC", column.strip()) for column in columns[:2])
        words = found.setdefault(lemma, {})
        words.update((word, None) for word in (lemma, form) if word and len(word.split()) == 1)
    return {lemma: list(words) for lemma, words in found.items() if words}


def unimorph_files(paths: Sequence[str]) -> dict[str, str]:
    """The files that paths of files and folders stand for, by their names without ending.

    Raises:
        UserError: there are none, or two of one name.
    """
    found: dict[str, str] = {}
    for path in paths:
        inside = sorted(file for file in Path(path).iterdir() if _is_unimorph(file)) if Path(path).is_dir() else [path]
        for file in map(str, inside):
            if Path(file).stem in found:
                raise UserError(f"{file}: {found[Path(file).stem]} has the same name; rename one")
            found[Path(file).stem] = file
    if not found:
        raise UserError(f"{', '.join(paths)}: no UniMorph file there; give the file of a language, such as eng")
    return found


def draw_pairs(words: Mapping[str, Sequence[str]], num_pairs: int, *, seed: int, name: str) -> WordPairs:
    """At most `num_pairs` related pairs and as many random ones.

    Lemmas come in a random order, a pair each, and again from the first on until there are enough or none has another
    pair. The order and the pairs are those of `seed` and `name`.

    Args:
        words: of each lemma the different ones.
        num_pairs: at least 1.
        seed: of the draws.
        name: of the language.

    Raises:
        UserError: no lemma has two words, or all words are of one lemma.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    lemmas = list(words)
    left = {lemma: _pairs_in_any_order(words[lemma], rng) for lemma in lemmas if len(words[lemma]) > 1}
    if not left or len(lemmas) < 2:
        raise UserError(f"{name}: needs two lemmas, one of them with two words; give a file of more words")
    order = [lemmas[index] for index in rng.permutation(len(lemmas)).tolist() if lemmas[index] in left]
    number = {lemma: index for index, lemma in enumerate(lemmas)}
    related, random, drawn = [], [], []
    while left and len(related) < num_pairs:
        for lemma in [lemma for lemma in order if lemma in left][: num_pairs - len(related)]:
            pair = left[lemma].pop()
            if not left[lemma]:
                del left[lemma]
            other = _other_word(pair[0], lemma, lemmas, words, rng)
            if other is not None:
                related.append(pair)
                random.append((pair[0], other))
                drawn.append(number[lemma])
    return WordPairs(related, random, np.array(drawn, dtype=np.int64))


def _pairs_in_any_order(words: Sequence[str], rng: np.random.Generator) -> list[tuple[str, str]]:
    """All pairs of two of the words, or as many as there are words in a large paradigm."""
    pairs = [(word, other) for at, word in enumerate(words) for other in words[:at]]
    return [pairs[int(index)] for index in rng.permutation(len(pairs))[: max(len(words), 10)]]


def _other_word(
    word: str, lemma: str, lemmas: Sequence[str], words: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> str | None:
    """A word of another lemma that is not spelled as `word`; None where none was met."""
    for _ in range(_TRIES):
        other = lemmas[int(rng.integers(len(lemmas)))]
        found = words[other][int(rng.integers(len(words[other])))]
        if other != lemma and found != word:
            return found
    return None


def _is_unimorph(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix.lower() not in (".md", ".txt", ".json")
