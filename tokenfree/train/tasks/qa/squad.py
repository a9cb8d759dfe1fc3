"""How good answers to questions in the form of SQuAD are: exact match and F1 of words, as the official scripts say.

TyDi QA's gold passages are judged by SQuAD 1.1's rules in every language; MLQA has rules of its own for seven. All
values are shares, from 0 to 1.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Rules = Literal["squad", "ar", "de", "en", "es", "hi", "vi", "zh"]

# Articles that do not count; in Arabic one is part of a word, and MLQA takes its letters away wherever they stand.
_ARTICLES: dict[Rules, str] = {
    "squad": r"\b(a|an|the)\b",
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": "ال",
}
TYDI_LANGUAGES = frozenset(
    ("arabic", "bengali", "english", "finnish", "indonesian", "japanese", "korean", "russian", "swahili", "telugu",
     "thai")
)  # fmt: skip
_HAN = re.compile("([\u4e00-\u9fa5])")


@dataclasses.dataclass(frozen=True, slots=True)
class SquadScores:
    """Means over questions.

    Attributes:
        exact_match: share of the answers that are a right one.
        f1: mean of the F1 of words with the right answer that is most alike.
        num_questions: how many questions.
    """

    exact_match: float
    f1: float
    num_questions: int


def normalized(answer: str, rules: Rules = "squad") -> str:
    """The words of an answer that count, one space between: in lower case, without punctuation and articles.

    Args:
        rules: `squad`, for every language, where punctuation is that of ASCII; or those of MLQA for a language, where
            it is that of Unicode and each Chinese character is a word.
    """
    answer = "".join(character for character in answer.lower() if not _is_punctuation(character, rules))
    if rules in _ARTICLES:
        answer = re.sub(_ARTICLES[rules], " ", answer)
    if rules == "zh":
        answer = _HAN.sub(r" \1 ", answer)
    return " ".join(answer.split())


def exact_match(gold: str, answer: str, rules: Rules = "squad") -> float:
    """1 where both have the same words that count, else 0."""
    return float(normalized(gold, rules) == normalized(answer, rules))


def word_f1(gold: str, answer: str, rules: Rules = "squad") -> float:
    """F1 of the words that count of both; 0 where either has none."""
    gold_words, words = normalized(gold, rules).split(), normalized(answer, rules).split()
    common = (collections.Counter(gold_words) & collections.Counter(words)).total()
    return 2 * common / (len(gold_words) + len(words)) if common else 0.0


def score_squad(
    gold: Mapping[str, Sequence[str]], answers: Mapping[str, str], rules: Rules = "squad"
) -> dict[str, SquadScores]:
    """Scores of `all` questions, and where some cannot be answered of those with and without an answer apart.

    Where all can be answered the rules are those of SQuAD 1.1, else of 2.0: nothing is then a right answer as well.

    Args:
        gold: by the id of a question the answers that are right; none where the context does not answer.
        answers: what was answered; empty for nothing. A question that is missing gets no credit.
        rules: of normalisation.
    """
    credits = {name: _credits(texts, answers.get(name), rules) for name, texts in _right_answers(gold, rules).items()}
    scores = {"all": _mean(credits.values())}
    without = {name for name, texts in gold.items() if not texts}
    if without:
        scores["answerable"] = _mean(credits[name] for name in credits if name not in without)
        scores["unanswerable"] = _mean(credits[name] for name in without)
    return scores


def best_with_threshold(
    gold: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    scores: Mapping[str, float],
    rules: Rules = "squad",
) -> tuple[SquadScores, float | None]:
    """The best F1, with its exact match, that answering only above some score gives, and the lowest score answered.

    Args:
        gold: as for `score_squad`.
        answers: the best span of every question, whatever its score.
        scores: of these spans.
        rules: of normalisation.
    """
    right = _right_answers(gold, rules)
    ordered = sorted(right, key=lambda name: -scores[name])
    refused = {name: _credits(right[name], "", rules) for name in ordered}
    current = [sum(column) for column in zip(*refused.values(), strict=True)]
    best, threshold = list(current), None
    for index, name in enumerate(ordered):
        given = _credits(right[name], answers[name], rules)
        current = [total + now - before for total, now, before in zip(current, given, refused[name], strict=True)]
        if index + 1 < len(ordered) and scores[ordered[index + 1]] == scores[name]:
            continue  # no threshold lies between equals
        if current[1] > best[1]:
            best, threshold = list(current), scores[name]
    return SquadScores(best[0] / len(right), best[1] / len(right), len(right)), threshold


def languages_of(ids: Iterable[str]) -> dict[str, list[str]]:
    """The ids of questions by the language that they name, as TyDi QA's gold passages do; none if one names none."""
    found: dict[str, list[str]] = {}
    for name in ids:
        language = name.split("-")[0]
        if language not in TYDI_LANGUAGES:
            return {}
        found.setdefault(language, []).append(name)
    return found


def mean_of_languages(scores: Mapping[str, SquadScores]) -> SquadScores:
    """The mean over languages, English left out where there are others."""
    averaged = [of for language, of in scores.items() if language != "english"] or list(scores.values())
    exact, f1 = (sum(getattr(of, name) for of in averaged) / len(averaged) for name in ("exact_match", "f1"))
    return SquadScores(exact, f1, sum(of.num_questions for of in averaged))


def _right_answers(gold: Mapping[str, Sequence[str]], rules: Rules) -> dict[str, list[str]]:
    """By question; in SQuAD 2.0 an empty text where there is none, and answers of which no word counts left out."""
    if all(gold.values()):
        return {name: list(texts) for name, texts in gold.items()}
    return {name: [text for text in texts if normalized(text, rules)] or [""] for name, texts in gold.items()}


def _credits(right: Sequence[str], answer: str | None, rules: Rules) -> tuple[float, float]:
    """Exact match and F1 with the right answer for which each is best."""
    if answer is None:
        return 0.0, 0.0
    exact = max(exact_match(gold, answer, rules) for gold in right)
    return exact, exact if "" in right else max(word_f1(gold, answer, rules) for gold in right)


def _mean(credits: Iterable[tuple[float, float]]) -> SquadScores:
    credits = list(credits)
    count = max(1, len(credits))
    return SquadScores(sum(exact for exact, _ in credits) / count, sum(f1 for _, f1 in credits) / count, len(credits))


def _is_punctuation(character: str, rules: Rules) -> bool:
    return character in string.punctuation or (rules != "squad" and unicodedata.category(character)[0] == "P")
