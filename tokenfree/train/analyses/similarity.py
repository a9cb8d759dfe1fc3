"""Similarity of word vectors compared with similarity of spelling, as in Byte2Word (Lee, Guo, Qiu, arXiv 2211.12677).

Pairs of words come from UniMorph (Kirov et al., arXiv 1810.11101). A line is a lemma, a form and its
features, separated by tabs. Later columns and blank lines are ignored.

N words or pairs, U units, D width, R replicates, M measures
"""

import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from rapidfuzz import distance, process
from scipy import stats
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.analyses.subject import AnalysedModel, read_lines
from tokenfree.train.batches.words import NUM_FRAME
from tokenfree.train.intervals import bootstrap_interval, none_if_nan
from tokenfree.train.model.common.basic import Downsampled, any_of_units
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.torch_state import default_settings

_TRIES = 20  # attempts to draw a word of another lemma


class WordPairs(NamedTuple):
    """Pairs of different words, each drawn for a lemma. Each related pair has a random counterpart."""

    related: list[tuple[str, str]]  # both words belong to the lemma
    random: list[tuple[str, str]]  # the first word belongs to the lemma, the second one to another lemma
    lemmas: np.ndarray  # int64 [pairs]: number of the lemma


def read_unimorph(path: AnyPath) -> dict[str, list[str]]:
    """Return the words of each lemma in NFC, the lemma first, without phrases.

    Raises UserError without a tab.
    """
    words_by_lemma: dict[str, dict[str, None]] = {}
    for number, line in read_lines(path):
        columns = line.split("\t")
        if len(columns) < 2:
            raise UserError(
                f"{path}:{number}: no tab; a line of UniMorph is a lemma, a form and its features"
            )
        lemma, form = (unicodedata.normalize("NFC", column.strip()) for column in columns[:2])
        words = words_by_lemma.setdefault(lemma, {})
        words.update((word, None) for word in (lemma, form) if word and len(word.split()) == 1)
    return {lemma: list(words) for lemma, words in words_by_lemma.items() if words}


def unimorph_files(paths: Sequence[AnyPath]) -> dict[str, AnyPath]:
    """Return files by their name without ending. Raises UserError if two have the same name."""
    paths_by_name = {Path(path).stem: path for path in paths}
    if len(paths_by_name) < len(paths):
        raise UserError(f"{', '.join(map(str, paths))}: two of these have the same name; rename one")
    return paths_by_name


def draw_pairs(words: Mapping[str, Sequence[str]], num_pairs: int, *, seed: int, name: str) -> WordPairs:
    """Draw at most `num_pairs` related pairs and the same number of random ones.

    Rounds over the lemmas, in one random order, take one pair of each, until there are enough pairs or no
    lemma has another one. Raises UserError if no lemma has two words, or all words belong to one lemma.
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
    """Return all pairs of two words in random order, but at most as many as there are words, or 10 if that is more."""
    pairs = [(word, other) for at, word in enumerate(words) for other in words[:at]]
    return [pairs[int(index)] for index in rng.permutation(len(pairs))[: max(len(words), 10)]]


def _other_word(
    word: str, lemma: str, lemmas: Sequence[str], words: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> str | None:
    for _ in range(_TRIES):
        other = lemmas[int(rng.integers(len(lemmas)))]
        candidate = words[other][int(rng.integers(len(words[other])))]
        if other != lemma and candidate != word:
            return candidate
    return None


Place = Literal["down", "output"]

_AT_ONCE = 256


def have_vectors(model: AnalysedModel, words: Sequence[str], place: Place = "down") -> np.ndarray:
    """Return which words have a separate vector in `place`, bool [N]. `word_vectors` describes the places."""
    if model.symbols == "subwords":
        counts_N = np.diff(model.vocabulary.encode_flat(list(words)).offsets)
        return (
            counts_N == 1
            if place == "down"
            else (counts_N >= 1) & (counts_N + NUM_FRAME <= model.reader.length)
        )
    fits_N = np.array([model.fitting(word) == word for word in words], dtype=bool)
    if model.symbols == "bytes" and place == "down":
        return fits_N & np.array([len(word_spans(word)[0]) == 1 for word in words], dtype=bool)
    return fits_N


def word_vectors(model: AnalysedModel, words: Sequence[str], place: Place = "down") -> np.ndarray:
    """Return the vector of each word, float32 [N, D].

    Each is read alone between CLS and SEP, so at the same position. `down` is the word's unit before the
    trunk for models of words. For subwords it is the row of the table, and for characters the mean over the
    word's units. `output` is the mean of the outputs for the word's characters or subwords. Use only words
    that `have_vectors` accepts.
    """
    vectors = np.zeros((len(words), model.encoder.width), dtype=np.float32)
    of = _of_subwords if model.symbols == "subwords" else _of_texts
    for start in range(0, len(words), _AT_ONCE):
        some = list(words[start : start + _AT_ONCE])
        vectors[start : start + len(some)] = of(model, some, place).float().cpu().numpy()
    return vectors


def _of_texts(model: AnalysedModel, words: list[str], place: Place) -> Tensor:
    seen: list[tuple[Tensor, Downsampled]] = []
    with model.encoder.downsampler.register_forward_hook(
        lambda _, inputs, down: seen.append((inputs[1], down))
    ):
        encoded = model.reader(words)
    if place == "output":
        return encoded.mean
    mask_BC, down = seen[0]
    # Excludes the last symbol, SEP.
    inner_BC = mask_BC & (mask_BC.flip(1).cumsum(1).flip(1) > 1)
    # Excludes the first symbol, CLS.
    inner_BC[:, 0] = False
    inner_BU = any_of_units(inner_BC, down.grouping, down.valid_BU.shape[1])
    return (down.units_BUD * inner_BU[..., None]).sum(dim=1) / inner_BU.sum(dim=1, keepdim=True)


@torch.no_grad()
def _of_subwords(model: AnalysedModel, words: list[str], place: Place) -> Tensor:
    rows, encoder = [model.subwords(word) for word in words], model.encoder
    if place == "down":
        assert isinstance(encoder.embedder, CharacterEmbedder)
        return encoder.embedder.table(torch.cat([row[:, 1:-1] for row in rows]))[:, 0]
    units = [encoder.encode(row, torch.ones_like(row, dtype=torch.bool))[1][0, 1:-1] for row in rows]
    return torch.stack([unit_UD.mean(dim=0) for unit_UD in units])


MEASURES: dict[str, Callable[..., float]] = {
    "levenshtein": distance.Levenshtein.normalized_similarity,
    "damerau_levenshtein": distance.DamerauLevenshtein.normalized_similarity,
    "jaro": distance.Jaro.normalized_similarity,
    "jaro_winkler": distance.JaroWinkler.normalized_similarity,
    "lcs": distance.LCSseq.normalized_similarity,
}
REPLICATES = 1000  # number of bootstrap samples
MIN_PAIRS = 10  # minimum number of pairs for a correlation


def spelling_similarities(pairs: Sequence[tuple[str, str]]) -> dict[str, np.ndarray]:
    """Return the similarity of the two words of each pair, from 0 to 1, float64 [N], for each measure.

    Edit distances and the longest common subsequence are divided by the length of the longer word.
    """
    one, other = ([pair[place] for pair in pairs] for place in (0, 1))
    return {
        name: np.asarray(process.cpdist(one, other, scorer=scorer, dtype=np.float64))
        for name, scorer in MEASURES.items()
    }


def cosines(one_ND: np.ndarray, other_ND: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows, float64 [N]; nan if a row is zero."""
    one, other = one_ND.astype(np.float64), other_ND.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (one * other).sum(axis=1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))


def correlate(
    cosine_N: np.ndarray, spelling: dict[str, np.ndarray], lemmas_N: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """Return Spearman's correlation of the cosine with each measure, and the ends of its 95% interval.

    The bootstrap samples lemmas with all their pairs. Values are nan if either side is constant.
    """
    table_NM = np.stack([cosine_N, *spelling.values()], axis=1)
    names, of_N = np.unique(lemmas_N, return_inverse=True)
    order, counts = np.argsort(of_N, kind="stable"), np.bincount(of_N)
    starts = np.cumsum(counts) - counts
    replicates = []
    for _ in range(REPLICATES):
        drawn = rng.integers(len(names), size=len(names))
        sizes = counts[drawn]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        replicates.append(_spearman(table_NM[order[np.repeat(starts[drawn], sizes) + within]]))
    low_M, high_M = bootstrap_interval(np.array(replicates))
    return {
        name: (correlation, low, high)
        for name, correlation, low, high in zip(
            spelling, _spearman(table_NM).tolist(), low_M.tolist(), high_M.tolist(), strict=True
        )
    }


@default_settings()
def similarity(
    model: AnalysedModel,
    data: Sequence[AnyPath],
    num_pairs: int = 2000,
    *,
    seed: int = 0,
    place: Place = "down",
    vocabulary: Vocabulary | None = None,
) -> dict[str, Any]:
    """Return Spearman's correlation of the cosine of word vectors with similarities of spelling, over UniMorph pairs.

    Words are read in NFC and otherwise unchanged. Pairs are drawn with `seed` from words that have a vector
    in `place` and, with a `vocabulary`, are a single subword of it. `rows` has one row per language, kind of
    pairs and measure, with the 95% interval from `low` to `high`. Raises UserError if a file has fewer than
    10 pairs.
    """
    rows: list[dict[str, Any]] = []
    words: dict[str, dict[str, int]] = {}
    for name, path in unimorph_files(data).items():
        lemmas = read_unimorph(path)
        every = list(dict.fromkeys(word for of_lemma in lemmas.values() for word in of_lemma))
        used_N = have_vectors(model, every, place)
        if vocabulary is not None:
            used_N &= np.diff(vocabulary.encode_flat(every).offsets) == 1
        used = {word for word, use in zip(every, used_N.tolist(), strict=True) if use}
        words[name] = {"in_file": len(every), "usable": len(used)}
        kept = {lemma: [word for word in of_lemma if word in used] for lemma, of_lemma in lemmas.items()}
        pairs = draw_pairs(
            {lemma: left for lemma, left in kept.items() if left}, num_pairs, seed=seed, name=name
        )
        if len(pairs.related) < MIN_PAIRS:
            raise UserError(
                f"{path}: {len(pairs.related)} pairs of words of one lemma that {model.name} reads as one each, of "
                f"{len(used)} such words; at least {MIN_PAIRS} are needed: give a larger file, or --vectors output"
            )
        rows += _rows(model, name, pairs, seed, place)
    return {
        "analysis": "similarity",
        **model.record(),
        "symbols": model.symbols,
        "vectors": place,
        "seed": seed,
        "words": words,
        "rows": rows,
    }


def _rows(model: AnalysedModel, name: str, pairs: WordPairs, seed: int, place: Place) -> list[dict[str, Any]]:
    words = sorted({word for pair in [*pairs.related, *pairs.random] for word in pair})
    index = {word: number for number, word in enumerate(words)}
    vectors = word_vectors(model, words, place)
    kinds = {"related": pairs.related, "random": pairs.random, "both": [*pairs.related, *pairs.random]}
    rows = []
    for kind, drawn in kinds.items():
        at_N2 = np.array([[index[word] for word in pair] for pair in drawn])
        lemmas_N = np.tile(pairs.lemmas, len(drawn) // len(pairs.lemmas))
        cosine_N = cosines(vectors[at_N2[:, 0]], vectors[at_N2[:, 1]])
        facts = {"language": name, "kind": kind, "pairs": len(drawn), "lemmas": len(np.unique(lemmas_N))}
        rng = np.random.default_rng([seed, zlib.crc32(f"{name} {kind}".encode())])
        for measure, values in correlate(cosine_N, spelling_similarities(drawn), lemmas_N, rng).items():
            numbers = dict(zip(("spearman", "low", "high"), map(none_if_nan, values), strict=True))
            rows.append(
                {**facts, "mean_cosine": none_if_nan(float(cosine_N.mean())), "measure": measure, **numbers}
            )
    return rows


def _spearman(table_NM: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(stats.rankdata(table_NM, axis=0), rowvar=False)[0, 1:]
