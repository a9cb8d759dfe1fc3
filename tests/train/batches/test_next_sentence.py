"""Pairs of parts: where windows are cut, what is put together, and that the loss is the sum of two means."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tokenfree.core.settings import Slot
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.text.specials import CLS, PAD, SEP, of_subwords
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.next_sentence import Cut, Window, cut_pair, cut_places, truncate_pair
from tokenfree.train.data.loader import Loader, load_windows, second_segments
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.objectives import canine_s
from tokenfree.train.objectives.base import MaskedHead

OBJECTIVES = Slot("tokenfree.train.objectives", "canine_s")
PAIRED = [
    name
    for name in OBJECTIVES.names()
    if "next_sentence" in {field.name for field in dataclasses.fields(OBJECTIVES.config_class(name))}
]
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
        first, second = parts_of(
            batch["codepoints"][row], batch["mask"][row], batch["segments"][row], CLS, SEP
        )
        text = window["text"]
        assert alike(text[: len(first)], first)
        assert batch["num_characters"][row] == len(first) + len(second)
        follows = text[len(first) :].lstrip()
        if not elsewhere[row]:
            assert alike(follows[: len(second)], second)
        elif batch["target_positions"][row, 0] <= len(first) and len(second) > 3:  # the second is as it was
            shown = "".join(map(chr, second))
            assert {document for text, document in texts.items() if shown in text} - {window["document"]}
        assert len(second) <= len(follows)  # as long as it could be if it followed
    assert (batch["codepoints"][~batch["mask"]] == PAD).all()


def test_long_parts_keep_what_is_near_the_cut(corpus: str) -> None:
    batch = batch_of(corpus, "canine_c", length=32)
    assert (batch["mask"].sum(axis=1) <= 32 - 6).all()
    for row, window in enumerate(load_windows(corpus, streams=2, global_batch=200, stop=200)):
        first, second = parts_of(
            batch["codepoints"][row], batch["mask"][row], batch["segments"][row], CLS, SEP
        )
        text = window["text"]
        at = [end for end in range(len(text)) if alike(text[max(0, end - len(first)) : end], first)]
        if not batch["from_elsewhere"][row]:
            assert any(alike(text[end:].lstrip()[: len(second)], second) for end in at)


def alike(text: str, part: np.ndarray) -> bool:
    """Return True if it is `text` except for masks, or for one replaced subword or character."""
    if len(text) != len(part):
        return False
    changed = np.flatnonzero((np.array([ord(c) for c in text], dtype=np.int64) != part) & (part < 0xE000))
    return not len(changed) or bool(np.ptp(changed) < 8)


def test_parts_of_subwords(corpus: str) -> None:
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    batch = batch_of(corpus, "masked_subwords")
    windows = list(load_windows(corpus, streams=2, global_batch=200, stop=200))
    differs: list[bool] = []
    for row, window in enumerate(windows):
        frame = of_subwords(vocabulary.size)[1:3]
        first, second = parts_of(batch["codepoints"][row], batch["mask"][row], batch["segments"][row], *frame)
        ids = window["subword_ids"]
        assert (ids[: len(first)] != first).sum() <= 1  # masked
        follows = ids[len(first) : len(first) + len(second)]
        if not batch["from_elsewhere"][row]:
            assert (follows != second).sum() <= 1
            last = len(first) + len(second) - 1
            gap = (
                int(window["subword_ends"][last])
                - int(window["subword_starts"][0])
                - batch["num_characters"][row]
            )
            assert 0 <= gap <= 40  # the white space at the cut
        elif len(second) > 3:
            assert len(follows) == len(second)
            differs.append(bool((follows != second).any()))
    assert len(differs) > 10
    assert np.mean(differs) > 0.9  # rules of a table are alike everywhere


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_do_not_depend_on_the_number_of_workers(corpus: str, name: str) -> None:
    alone = batch_of(corpus, name, step=3, global_batch=12)
    parts = [batch_of(corpus, name, step=3, global_batch=12, rank=rank, world_size=3) for rank in range(3)]
    for key, array in alone.items():
        np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), array)


def test_second_segments_are_of_other_documents(corpus: str) -> None:
    reader = ShardReader(corpus, "train")
    rows = np.arange(reader.shards[0].rows, dtype=np.int64)
    rows, ids = np.tile(rows, 5), np.arange(5 * len(rows))
    _, found = second_segments(reader, np.zeros_like(rows), rows, seed=3, sample_ids=ids)
    documents = [reader.shard(0).row("document", row).tobytes() for row in range(reader.shards[0].rows)]
    sizes = np.array([len(reader.shard(0).row("whitespace", row)) for row in range(reader.shards[0].rows)])
    assert all(documents[a] != documents[b] for a, b in zip(rows, found, strict=True))
    assert len(np.unique(found)) > 0.8 * len(np.unique(rows))
    drawn = np.abs(np.random.default_rng(0).permutation(sizes[rows]) - sizes[rows]).mean()
    assert np.abs(sizes[found] - sizes[rows]).mean() < 0.5 * drawn  # of four, the one most alike in length
    _, some = second_segments(reader, np.zeros(2, np.int64), rows[[7, 90]], seed=3, sample_ids=ids[[7, 90]])
    assert some.tolist() == found[[7, 90]].tolist()
    assert not np.array_equal(
        second_segments(reader, np.zeros_like(rows), rows, seed=4, sample_ids=ids)[1], found
    )


def window_of(text: str) -> Window:
    """A window whose sentences end with a full stop, and whose subwords are its words."""
    white = np.array([c.isspace() for c in text], np.bool_)
    words = [at for at, c in enumerate(text) if not c.isspace() and (at == 0 or text[at - 1].isspace())]
    ends = [at + 1 for at, c in enumerate(text) if not c.isspace() and text[at + 1 : at + 2] in ("", " ")]
    sentences = [at for at in words if at == 0 or text[:at].rstrip().endswith(".")]
    return {
        "whitespace": white,
        "codepoints": np.array([ord(c) for c in text], np.int32),
        "sentence_starts": np.array(sentences, np.uint16),
        "subword_ids": np.arange(len(words), dtype=np.int32),
        "subword_starts": np.array(words, np.uint16),
        "subword_ends": np.array(ends, np.uint16),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two. Three.", [[5, 10], [], [1, 2, 3, 6, 7, 8, 11, 12, 13, 14, 15]]),
        ("a bc  def", [[], [2, 6], [3, 7, 8]]),
        ("word", [[], [], [1, 2, 3]]),
        ("w", [[], [], []]),
    ],
)
def test_where_a_window_can_be_cut(text: str, expected: list[list[int]]) -> None:
    assert [places.tolist() for places in cut_places(window_of(text))] == expected


def parts(first: str, second: str, cut: Cut) -> tuple[str, str, str]:
    """A, B where it follows A, B where it is from elsewhere."""
    return (
        first[cut.end_a - cut.num_a : cut.end_a],
        first[cut.begin_next : cut.begin_next + cut.num_b],
        second[cut.begin_other : cut.begin_other + cut.num_b],
    )


@pytest.mark.parametrize(
    ("first", "second", "place", "room", "expected"),
    [
        # At sentences, the second where as much follows; as long as both go, and neither or both end with a
        # sentence.
        ("Aa bb. Cc dd ee.", "Vv. Ww xx yy zz.", 0.0, 99, ("Aa bb.", "Cc dd ee", "Ww xx yy")),
        ("Aa bb. Cc dd ee.", "Vv. Ww.", 0.0, 99, ("Aa bb.", "Cc", "Ww")),
        ("Aa bb. Cc. Dd.", "Ww xx. Yy. Zz.", 0.9, 99, ("Aa bb. Cc.", "Dd.", "Zz.")),
        # Where one of them is one sentence, both at words inside a sentence.
        ("Aa bb. Cc dd ee.", "vv ww xx yy zz.", 0.0, 99, ("Aa", "bb. Cc dd e", "ww xx yy zz")),
        ("Aa bb.", "word", 0.5, 99, ("Aa b", "b.", "rd")),  # or inside a word
        ("Aa bb. Cc dd ee.", "Vv. Ww xx yy zz.", 0.0, 8, (" bb.", "Cc d", "Ww x")),  # half of the room each
        ("w", "Vv. Ww.", 0.0, 99, ("w", "", "")),
    ],
)
def test_both_windows_are_cut_alike(
    first: str, second: str, place: float, room: int, expected: tuple[str, str, str]
) -> None:
    assert (
        parts(first, second, cut_pair(window_of(first), window_of(second), place, "codepoints", room))
        == expected
    )


def test_subwords_are_cut_alike() -> None:
    first, second = "Aa bb. Cc dd ee.", "Vv. Ww xx yy zz."
    cut = cut_pair(window_of(first), window_of(second), 0.0, "subword_ids", 99)
    # Of "Ww xx yy" and "Cc dd ee." a word less.
    assert cut == Cut(end_a=2, begin_next=2, begin_other=1, num_a=2, num_b=2)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(2, 100))
def test_two_parts_fill_the_room(num_a: int, num_b: int, room: int) -> None:
    a, b = truncate_pair(num_a, num_b, room)
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
        self,
        codepoints: torch.Tensor,
        mask: torch.Tensor,
        *,
        targets_BP: torch.Tensor,
        segments_BC: torch.Tensor,
    ) -> Output:
        h_BCD = self.table((codepoints + segments_BC) % 64) * mask[..., None]
        return Output(h_BCD.gather(1, targets_BP[..., None].expand(-1, -1, 8)), h_BCD.sum(dim=1))


def test_the_loss_is_masked_and_next_sentence_loss(corpus: str) -> None:
    """Of examples with as many targets each it is the sum of the two means; halves of a batch add up in any case."""
    vocabulary = load_vocabulary(corpus)
    assert vocabulary is not None
    collator = canine_s.Config(next_sentence=True, mask_fraction=1.0, max_predictions=2).collator(
        vocabulary, LENGTH, 0
    )
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
    everything, halves = (
        loss_of(np.arange(40)),
        [loss_of(part) for part in (np.arange(13), np.arange(13, 40))],
    )
    assert sum(half.total.item() for half in halves) == pytest.approx(everything.total.item(), rel=1e-5)
