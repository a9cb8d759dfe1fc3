"""Pairs of parts: where windows are cut, what is put together, and that the loss is the sum of two means."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from preprocess.settings import Slot
from train.config import load_vocabulary
from train.data.loader import Loader
from train.data.partners import partners
from train.data.reader import Split
from train.data.windows import load_windows
from train.objectives import canine_s
from train.objectives.base import Arrays
from train.objectives.framing import CLS, PAD, SEP
from train.objectives.heads import MaskedHead
from train.objectives.masked_subwords import CLS as SUBWORD_CLS
from train.objectives.masked_subwords import SEP as SUBWORD_SEP
from train.objectives.next_sentence import cut, fit

OBJECTIVES = Slot("train.objectives", "canine_s")
PAIRED = [name for name in OBJECTIVES.names() if hasattr(OBJECTIVES.config_class(name), "next_sentence")]
LENGTH = 128


def batch_of(corpus: str, name: str, step: int = 0, *, length: int = LENGTH, **options: Any) -> Arrays:
    config = OBJECTIVES.config_class(name)(next_sentence=True, mask_fraction=1e-6, max_predictions=1)
    collator = config.collator(load_vocabulary(corpus), length, 0)
    options = {"global_batch": 200, "streams": 2, "smoothing": 0.7, "seed": 0, **options}
    return Loader(corpus, collator=collator, **options).batch(step)


def parts_of(line: np.ndarray, mask: np.ndarray, segments: np.ndarray, cls: int, sep: int) -> tuple[Any, Any]:
    """The parts of one example, after a look at its frame."""
    size = int(mask.sum())
    ends = np.flatnonzero(line[:size] == sep)
    assert line[0] == cls
    assert len(ends) == 2
    assert ends[1] == size - 1
    assert segments.tolist() == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0]) + [0] * (len(line) - size)
    return line[1 : ends[0]], line[ends[0] + 1 : ends[1]]


def test_the_objectives_with_pairs() -> None:
    assert {"canine_s", "canine_c", "masked_subwords"} <= set(PAIRED)


@pytest.mark.parametrize("name", ["canine_s", "canine_c", "masked_characters"])
def test_parts_are_of_one_document_or_of_two(corpus: str, name: str) -> None:
    batch = batch_of(corpus, name)
    windows = list(load_windows(corpus, streams=2, global_batch=200, stop=200))
    texts = {window["text"]: window["document"] for window in load_windows(corpus)}
    elsewhere = batch["from_elsewhere"]
    assert 0.35 < elsewhere.mean() < 0.6
    for row, window in enumerate(windows):
        first, second = parts_of(batch["codepoints"][row], batch["mask"][row], batch["segments"][row], CLS, SEP)
        assert alike(window["text"][: len(first)], first)
        assert batch["num_characters"][row] == len(first) + len(second)
        if elsewhere[row]:
            owners = {document for text, document in texts.items() if alike(text[-len(second) :], second)}
            assert owners - {window["document"]}
        else:
            assert alike(window["text"][-len(second) :], second)
            assert not window["text"][len(first) : len(window["text"]) - len(second)].strip()
    assert (batch["codepoints"][~batch["mask"]] == PAD).all()


def test_long_parts_keep_what_is_near_the_cut(corpus: str) -> None:
    batch = batch_of(corpus, "canine_c", length=32)
    assert (batch["mask"].sum(axis=1) <= 32 - 6).all()
    for row, window in enumerate(load_windows(corpus, streams=2, global_batch=200, stop=200)):
        first, second = parts_of(batch["codepoints"][row], batch["mask"][row], batch["segments"][row], CLS, SEP)
        text, size = window["text"], len(first) + len(second)
        at = [end for end in range(len(text)) if alike(text[max(0, end - len(first)) : end], first)]
        if not batch["from_elsewhere"][row]:
            assert any(alike(text[end:].lstrip()[: len(second)], second) for end in at)
        if len(text) > 32:
            assert size >= 23 or batch["from_elsewhere"][row]


def alike(text: str, part: np.ndarray) -> bool:
    """Whether it is `text` but for what is masked, or for one replaced subword or character."""
    if len(text) != len(part):
        return False
    changed = np.flatnonzero((np.array([ord(c) for c in text], dtype=np.int64) != part) & (part < 0xE000))
    return not len(changed) or bool(np.ptp(changed) < 8)


def test_parts_of_subwords(corpus: str) -> None:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    batch = batch_of(corpus, "masked_subwords")
    windows = list(load_windows(corpus, streams=2, global_batch=200, stop=200))
    for row, window in enumerate(windows):
        frame = (vocabulary.size + SUBWORD_CLS, vocabulary.size + SUBWORD_SEP)
        first, second = parts_of(batch["codepoints"][row], batch["mask"][row], batch["segments"][row], *frame)
        ids = window["subword_ids"]
        assert (ids[: len(first)] != first).sum() <= 1  # masked
        if not batch["from_elsewhere"][row]:
            assert len(first) + len(second) == len(ids)
            assert (ids[len(first) :] != second).sum() <= 1
            gap = int(window["subword_ends"][-1]) - int(window["subword_starts"][0]) - batch["num_characters"][row]
            assert 0 <= gap <= 12  # the white space at the cut


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_do_not_depend_on_the_number_of_workers(corpus: str, name: str) -> None:
    alone = batch_of(corpus, name, step=3, global_batch=12)
    parts = [batch_of(corpus, name, step=3, global_batch=12, rank=rank, world_size=3) for rank in range(3)]
    for key, array in alone.items():
        np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), array)


def test_partners_are_of_other_documents_in_half_of_the_cases(corpus: str) -> None:
    split = Split(corpus, "train")
    rows = np.arange(split.shards[0].rows, dtype=np.int64)
    rows, ids = np.tile(rows, 5), np.arange(5 * len(rows))
    _, found = partners(split, np.zeros_like(rows), rows, seed=3, sample_ids=ids)
    documents = [split.shard(0).row("document", row).tobytes() for row in range(split.shards[0].rows)]
    elsewhere = found != rows
    assert elsewhere.mean() == pytest.approx(0.5, abs=0.05)
    assert all(documents[a] != documents[b] for a, b in zip(rows[elsewhere], found[elsewhere], strict=True))
    assert len(np.unique(found[elsewhere])) > 0.6 * len(np.unique(rows))
    _, some = partners(split, np.zeros(2, np.int64), rows[[7, 90]], seed=3, sample_ids=ids[[7, 90]])
    assert some.tolist() == found[[7, 90]].tolist()
    assert not np.array_equal(partners(split, np.zeros_like(rows), rows, seed=4, sample_ids=ids)[1], found)


@pytest.mark.parametrize(
    ("text", "sentences", "expected"),
    [
        ("One. Two. Three.", [0, 5, 10], {5, 10}),
        ("a bc  def", [0], {2, 6}),  # one sentence: at words
        ("word", [0], {1, 2, 3}),  # one word: anywhere
        ("w", [0], {1}),
    ],
)
def test_where_a_window_is_cut(text: str, sentences: list[int], expected: set[int]) -> None:
    window = {
        "whitespace": np.array([c.isspace() for c in text], np.bool_),
        "sentence_starts": np.array(sentences, np.uint16),
    }
    assert {cut(window, place) for place in np.linspace(0, 0.999, 50)} == expected


@given(st.integers(0, 100), st.integers(0, 100), st.integers(2, 100))
def test_two_parts_fill_the_room(num_a: int, num_b: int, room: int) -> None:
    a, b = fit(num_a, num_b, room)
    assert a + b == min(num_a + num_b, room)
    assert a >= min(num_a, room // 2)
    assert b >= min(num_b, room // 2)


class Output(NamedTuple):
    characters: torch.Tensor
    pooled: torch.Tensor


class FakeEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 8)

    def forward(
        self, codepoints: torch.Tensor, mask: torch.Tensor, *, targets_BP: torch.Tensor, segments_BC: torch.Tensor
    ) -> Output:
        h_BCD = self.table((codepoints + segments_BC) % 64) * mask[..., None]
        return Output(h_BCD.gather(1, targets_BP[..., None].expand(-1, -1, 8)), h_BCD.sum(dim=1))


def test_the_loss_is_masked_and_next_sentence_loss(corpus: str) -> None:
    """Of examples with as many targets each it is the sum of the two means; halves of a batch add up in any case."""
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    collator = canine_s.Config(next_sentence=True, mask_fraction=1.0, max_predictions=2).collator(vocabulary, LENGTH, 0)
    arrays = Loader(corpus, global_batch=40, seed=0, smoothing=1, streams=2, collator=collator).batch(0)
    full = arrays["target_mask"].all(axis=1)
    assert full.sum() > 20
    torch.manual_seed(0)
    encoder, head = FakeEncoder(), MaskedHead(8, vocabulary.size, next_sentence=True)
    alone = MaskedHead(8, vocabulary.size)
    alone.load_state_dict({name: value for name, value in head.state_dict().items() if "next" not in name})

    def loss_of(rows: np.ndarray, head: MaskedHead = head) -> Any:
        return head(encoder, {name: torch.from_numpy(array[rows]) for name, array in arrays.items()})

    rows = np.flatnonzero(full)
    both, masked = loss_of(rows), loss_of(rows, alone)
    apart = {name: (total / count).item() for name, (total, count) in both.means.items()}
    assert tuple(apart) == head.means
    assert apart["masked_loss"] == pytest.approx(masked.total.item() / masked.num_targets.item(), rel=1e-5)
    summed = apart["masked_loss"] + apart["next_sentence_loss"]
    assert both.total.item() / both.num_targets.item() == pytest.approx(summed, rel=1e-5)
    assert 0 <= apart["next_sentence_accuracy"] <= 1
    everything, halves = loss_of(np.arange(40)), [loss_of(part) for part in (np.arange(13), np.arange(13, 40))]
    assert sum(half.total.item() for half in halves) == pytest.approx(everything.total.item(), rel=1e-5)
