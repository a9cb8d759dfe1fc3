"""Baselines without context, against counting by loops."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.batches.base import KEPT, MASKED, REPLACED, Arrays
from tokenfree.train.data.loader import load_windows
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import VALIDATION_SEED, Baselines, baselines, validation_batches
from tokenfree.train.objectives import byte2word, canine_c, canine_s, masked_characters, masked_subwords

LENGTH = 64
OBJECTIVES: dict[str, Any] = {
    "canine_s": canine_s.Config(),
    "canine_s with pairs": canine_s.Config(next_sentence=True),
    "canine_c": canine_c.Config(buckets=300, masked=0.9),
    "masked_characters": masked_characters.Config(buckets=300),
    "masked_subwords": masked_subwords.Config(),
    "byte2word": byte2word.Config(bytes_per_word=2),
}
PRIOR_WEIGHTS = (0.3, 1, 3, 10, 30, 100, 300)


@pytest.fixture(scope="module", params=OBJECTIVES)
def found(corpus: str, request: pytest.FixtureRequest) -> tuple[str, Baselines, list[Arrays]]:
    """The name of an objective, its baselines, and the batches that they are of."""
    objective, vocabulary = OBJECTIVES[request.param], load_vocabulary(corpus)
    length = 144 if request.param == "byte2word" else LENGTH
    collator = objective.collator(vocabulary, length, VALIDATION_SEED)
    batches = list(validation_batches(ShardReader(corpus, "validation"), collator=collator, num_windows=150))
    return (
        request.param,
        baselines(ShardReader(corpus, "train"), objective.symbols(vocabulary), batches),
        batches,
    )


def is_subword(piece: str) -> bool:
    """Neither a byte, nor a control piece, nor spaces alone; "<" is one."""
    return not (len(piece) > 2 and piece.startswith("<")) and piece.strip("▁") != ""


def pairs_of_window(name: str, window: dict[str, Any], vocabulary: Any) -> list[tuple[int, Any]]:
    """(symbol, clue) of all that could be a target in a window of training."""
    pieces = vocabulary.pieces
    if name.startswith("canine_s") or name == "masked_subwords":
        ids = [int(i) for i in window["subword_ids"] if is_subword(pieces[i])]
        shown = name.startswith("canine_s")
        return [
            (i, (len(pieces[i].replace("▁", "")), pieces[i].startswith("▁")) if shown else None) for i in ids
        ]
    if name == "byte2word":
        found = []
        for start, end in zip(window["word_starts"], window["word_ends"], strict=True):
            ids = vocabulary.encode_flat([window["text"].encode()[start:end].decode()]).ids.tolist()
            found += [(i, slot) for slot, i in enumerate(ids) if is_subword(pieces[i])]
        return found
    words = window["text"].split()
    return [(ord(c) % 300, (min(len(word), 31), min(at, 31))) for word in words for at, c in enumerate(word)]


def clue_of_target(name: str, batch: Arrays, row: int, target: int, pieces: list[str]) -> Any:
    """The clue of a target, from what the input shows."""
    if name == "masked_subwords":
        return None
    if name == "byte2word":
        return int(batch["target_positions"][row, target, 1])
    if name.startswith("canine_s"):
        piece = pieces[batch["target_ids"][row, target]]
        return len(piece.replace("▁", "")), piece.startswith("▁")
    at, line = int(batch["target_positions"][row, target]), batch["codepoints"][row].tolist()
    first = last = at
    while line[first - 1] not in (0xE000, 0xE001) and not chr(line[first - 1]).isspace():
        first -= 1
    while line[last + 1] not in (0xE000, 0xE001, 0) and not chr(line[last + 1]).isspace():
        last += 1
    return min(last - first + 1, 31), min(at - first, 31)


def test_they_are_those_of_counting(found: tuple[str, Baselines, list[Arrays]], corpus: str) -> None:
    name, ours, batches = found
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    pieces = vocabulary.pieces
    training = [
        each
        for window in load_windows(corpus, streams=1, global_batch=1)
        for each in pairs_of_window(name, window, vocabulary)
    ]
    symbols, clues, both = Counter(s for s, _ in training), Counter(c for _, c in training), Counter(training)
    usable = 300 if name in ("canine_c", "masked_characters") else sum(map(is_subword, pieces))
    places = [(batch, row, at) for batch in batches for row, at in np.argwhere(batch["target_mask"]).tolist()]
    golds = (int(batch["target_ids"][row, at]) for batch, row, at in places)
    shown = (clue_of_target(name, batch, row, at, pieces) for batch, row, at in places)
    kinds = [int(batch["target_kinds"][row, at]) for batch, row, at in places]
    targets = list(zip(golds, shown, kinds, strict=True))
    prior = {s: (symbols[s] + 1) / (len(training) + usable) for s, _, _ in targets}
    unigram = [-np.log(prior[s]) for s, _, _ in targets]
    np.testing.assert_allclose(ours.unigram_N, unigram)
    frequencies = np.array(list(symbols.values())) / len(training)
    assert ours.entropy == pytest.approx(-(frequencies * np.log(frequencies)).sum())
    given = {
        weight: [-np.log((both[s, c] + weight * prior[s]) / (clues[c] + weight)) for s, c, _ in targets]
        for weight in PRIOR_WEIGHTS
    }
    best = unigram if name == "masked_subwords" else min(given.values(), key=np.mean)
    np.testing.assert_allclose(ours.clue_N, best)

    share = kinds.count(KEPT) / (kinds.count(KEPT) + kinds.count(REPLACED))
    copied = [
        loss if kind == MASKED else -np.log((kind == KEPT) * share + (1 - share) * np.exp(-loss))
        for loss, kind in zip(best, kinds, strict=True)
    ]
    np.testing.assert_allclose(ours.copied_N, copied)
    assert ours.hidden_N.tolist() == [kind == MASKED for kind in kinds]


def test_their_order(found: tuple[str, Baselines, list[Arrays]]) -> None:
    """The more is known, the less is lost; what is best on the hidden targets is what a model is compared with."""
    name, ours, _ = found
    numbers = ours.numbers()
    assert numbers["copied"] < numbers["clue"] - 0.05
    assert (numbers["clue"] < numbers["unigram"] - 0.05) == (name != "masked_subwords")
    best = min(numbers["masked_only_unigram"], numbers["masked_only_clue"])
    assert ours.best_masked_only_N[ours.hidden_N].mean() == pytest.approx(best)


def test_a_split_is_counted_at_some_of_its_windows(corpus: str) -> None:
    vocabulary = load_vocabulary(corpus)
    symbols = canine_s.Config().symbols(vocabulary)
    assert symbols is not None
    whole, part = (
        baselines(ShardReader(corpus, "train"), symbols, [], max_rows=rows) for rows in (50_000, 200)
    )
    assert whole.entropy != part.entropy == pytest.approx(whole.entropy, rel=0.1)
    assert whole.numbers() == {}
