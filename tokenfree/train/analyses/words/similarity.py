"""How far the likeness of word vectors follows the likeness of spelling, as Byte2Word's authors ask.

Lee, Guo, Qiu, "Word-Level Representation From Bytes For Language Modeling", https://arxiv.org/abs/2211.12677.

N pairs, D width, R replicates, M measures
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rapidfuzz import distance, process
from scipy import stats

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.analyses.subject.model import AnalysedModel
from tokenfree.train.analyses.words.unimorph import WordPairs, draw_pairs, read_unimorph, unimorph_files
from tokenfree.train.analyses.words.vectors import Place, are_single, have_vectors, word_vectors

MEASURES: dict[str, Callable[..., float]] = {
    "levenshtein": distance.Levenshtein.normalized_similarity,
    "damerau_levenshtein": distance.DamerauLevenshtein.normalized_similarity,
    "jaro": distance.Jaro.normalized_similarity,
    "jaro_winkler": distance.JaroWinkler.normalized_similarity,
    "lcs": distance.LCSseq.normalized_similarity,
}
REPLICATES = 1000  # of the bootstrap
FEWEST = 10  # pairs, of which a correlation is told


def spelling_similarities(pairs: Sequence[tuple[str, str]]) -> dict[str, np.ndarray]:
    """The similarities of the two words of each pair in 0 to 1, float64 [N], by measure.

    The edit distances of Levenshtein and Damerau-Levenshtein, and the longest common subsequence, are divided by the
    length of the longer word (1 less the distance, and the length); the measures of Jaro and Jaro-Winkler are as
    defined.
    """
    one, other = ([pair[place] for pair in pairs] for place in (0, 1))
    return {
        name: np.asarray(process.cpdist(one, other, scorer=scorer, dtype=np.float64))
        for name, scorer in MEASURES.items()
    }


def cosines(one_ND: np.ndarray, other_ND: np.ndarray) -> np.ndarray:
    """The cosine of each row of both, float64 [N]; nan where one is zero."""
    one, other = one_ND.astype(np.float64), other_ND.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (one * other).sum(axis=1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))


def correlate(
    cosine_N: np.ndarray, spelling: dict[str, np.ndarray], lemmas_N: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """Spearman's correlation of the cosine with each measure, and the ends of its 95% interval.

    The interval is the percentile bootstrap over lemmas: those drawn come with all their pairs. Nan where either side
    is constant.
    """
    table_NM = np.stack([cosine_N, *spelling.values()], axis=1)
    found = _spearman(table_NM)
    names, of_N = np.unique(lemmas_N, return_inverse=True)
    order, counts = np.argsort(of_N, kind="stable"), np.bincount(of_N)
    starts = np.cumsum(counts) - counts
    replicates = []
    for _ in range(REPLICATES):
        drawn = rng.integers(len(names), size=len(names))
        sizes = counts[drawn]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        replicates.append(_spearman(table_NM[order[np.repeat(starts[drawn], sizes) + within]]))
    low_M, high_M = np.percentile(np.array(replicates), [2.5, 97.5], axis=0)
    return {name: (float(found[at]), float(low_M[at]), float(high_M[at])) for at, name in enumerate(spelling)}


def similarity(
    model: AnalysedModel,
    data: Sequence[str],
    num_pairs: int = 2000,
    *,
    seed: int = 0,
    place: Place = "down",
    vocabulary: Vocabulary | None = None,
) -> dict[str, Any]:
    """Spearman's correlation of the cosine of word vectors with similarities of spelling, over pairs from UniMorph.

    Words are read as they stand there, in NFC: no lower-casing, no accents stripped. Pairs are drawn among those that
    have a vector (`have_vectors`), see `draw_pairs`.

    Args:
        model: whose vectors they are.
        data: UniMorph files, and folders of such.
        num_pairs: related pairs of each language, and as many random ones; at least 10.
        seed: of the pairs and of the bootstrap.
        place: which vectors, see `word_vectors`.
        vocabulary: leaves only words that are one subword of it, so that other models are compared with one of
            subwords on its own words.

    Returns:
        `rows`, one for each language, kind of pairs (`related`, `random`, or `both` together) and measure: `spearman`
        with `low` and `high` (None where the vectors are all alike), `pairs`, the `lemmas` that they were drawn for,
        and `mean_cosine`. `words` tells for each language how many different words its file has and how many are used.

    Raises:
        UserError: a file cannot be read, or has fewer than 10 pairs.
    """
    rows: list[dict[str, Any]] = []
    words: dict[str, dict[str, int]] = {}
    for name, path in unimorph_files(data).items():
        lemmas = read_unimorph(path)
        every = list(dict.fromkeys(word for of_lemma in lemmas.values() for word in of_lemma))
        used_N = have_vectors(model, every, place)
        if vocabulary is not None:
            used_N &= are_single(vocabulary, every)
        used = {word for word, use in zip(every, used_N.tolist(), strict=True) if use}
        words[name] = {"in_file": len(every), "usable": len(used)}
        kept = {lemma: [word for word in of_lemma if word in used] for lemma, of_lemma in lemmas.items()}
        pairs = draw_pairs({lemma: left for lemma, left in kept.items() if left}, num_pairs, seed=seed, name=name)
        if len(pairs.related) < FEWEST:
            raise UserError(
                f"{path}: {len(pairs.related)} pairs of words of one lemma that {model.name} reads as one each, of "
                f"{len(used)} such words; at least {FEWEST} are needed: give a larger file, or --vectors output"
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
            told = dict(zip(("spearman", "low", "high"), map(_known, values), strict=True))
            rows.append({**facts, "mean_cosine": _known(float(cosine_N.mean())), "measure": measure, **told})
    return rows


def _spearman(table_NM: np.ndarray) -> np.ndarray:
    """The correlation of the ranks of the first column with those of each other one, float64 [M - 1]."""
    ranks = stats.rankdata(table_NM, axis=0)
    ranks -= ranks.mean(axis=0)
    sizes = np.sqrt((ranks**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (ranks[:, :1] * ranks[:, 1:]).sum(axis=0) / (sizes[0] * sizes[1:])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
