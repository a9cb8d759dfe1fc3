"""Subword masking: what is selected, what becomes of it, and that the head scores what the batch asks."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.specials import CLS, MASK, PAD, SEP
from tokenfree.train.batches.base import Arrays, Collator
from tokenfree.train.objectives.canine_s import Config

LENGTH = 256
CONTROL = ["<pad>", "<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
FRONT = [f"▁{a}{b}" for a in "bcdfghjklm" for b in "aeiou"]  # two characters
TAIL = ["n", "r", "s", "t", "ing", "ers", "ness"]  # one, three, four
PIECES = [*CONTROL, *FRONT, *TAIL, "▁alone"]


class FakeVocabulary:
    size = len(PIECES)

    @property
    def pieces(self) -> list[str]:
        return PIECES


VOCABULARY: Any = FakeVocabulary()


class Window(NamedTuple):
    codepoints: np.ndarray
    subword_ids: np.ndarray
    subword_starts: np.ndarray
    subword_ends: np.ndarray


def window_of(pieces: list[str]) -> Window:
    """The window of these pieces, as a shard holds it."""
    text, starts, ends = "", [], []
    for piece in pieces:
        if piece.startswith("<0x"):
            if piece == "<0xC3>":  # the first of the two bytes of é
                text += "é"
            starts.append(len(text) - 1)
        else:
            text += " " if piece.startswith("▁") and text else ""
            starts.append(len(text))
            text += piece.lstrip("▁")
        ends.append(len(text))
    ids = [PIECES.index(piece) for piece in pieces]
    return Window(np.array([ord(c) for c in text], np.int32), np.array(ids, np.int32), np.array(starts, np.uint16),
                  np.array(ends, np.uint16))  # fmt: skip


def random_window(number: int, num_words: int) -> Window:
    rng = np.random.default_rng(number)
    words = [[rng.choice(FRONT), *rng.choice(TAIL, size=rng.integers(0, 3))] for _ in range(num_words)]
    for at in range(0, num_words, 9):
        words[at] = ["<0xC3>", "<0xA9>"]
    return window_of([str(piece) for word in words for piece in word])


def collate(collator: Collator, windows: list[Window], ids: list[int] | None = None) -> Arrays:
    rows = {column: [getattr(window, column) for window in windows] for column in collator.columns}
    return collator(rows, np.arange(len(windows)) if ids is None else np.array(ids))


def make_collator(length: int = LENGTH, seed: int = 0, **config: Any) -> Collator:
    return Config(**config).collator(VOCABULARY, length, seed)


WINDOWS = [random_window(number, 30) for number in range(200)]


@pytest.fixture(scope="module")
def batch() -> Arrays:
    return collate(make_collator(mask_fraction=0.15), WINDOWS)


def test_inputs_are_framed_and_padded(batch: Arrays) -> None:
    for row, window in enumerate(WINDOWS):
        size = len(window.codepoints)
        line = batch["codepoints"][row]
        assert line[0] == CLS
        assert line[size + 1] == SEP
        assert (line[size + 2 :] == PAD).all()
        assert batch["mask"][row].tolist() == [True] * (size + 2) + [False] * (LENGTH - size - 2)
    assert (
        batch["codepoints"].dtype == batch["target_ids"].dtype == batch["target_positions"].dtype == np.int64
    )


def test_shapes_depend_on_nothing_but_the_number_of_rows() -> None:
    for windows in ([WINDOWS[0]], [window_of(["▁ba"])] * 3, [window_of([])]):
        shapes = {name: array.shape for name, array in collate(make_collator(), windows).items()}
        assert shapes == {
            "codepoints": (len(windows), LENGTH),
            "mask": (len(windows), LENGTH),
            "target_positions": (len(windows), 80),
            "target_ids": (len(windows), 80),
            "target_mask": (len(windows), 80),
            "target_kinds": (len(windows), 80),
            "num_characters": (len(windows),),
        }


def test_targets_are_gold_subwords_at_one_of_their_characters(batch: Arrays) -> None:
    for row, window in enumerate(WINDOWS):
        spans = list(zip(window.subword_starts.tolist(), window.subword_ends.tolist(), strict=True))
        real = batch["target_mask"][row]
        assert (batch["target_positions"][row][~real] == 0).all()
        assert (batch["target_ids"][row][~real] == 0).all()
        found = []
        for position, gold in zip(
            batch["target_positions"][row][real], batch["target_ids"][row][real], strict=True
        ):
            (at,) = (i for i, (start, end) in enumerate(spans) if start <= position - 1 < end)
            assert window.subword_ids[at] == gold
            assert not PIECES[gold].startswith("<")
            found.append(at)
        assert len(set(found)) == len(found)


def test_a_sixth_or_so_of_the_subwords_is_selected(batch: Arrays) -> None:
    for row, window in enumerate(WINDOWS):
        usable = np.count_nonzero(window.subword_ids >= len(CONTROL))
        assert batch["target_mask"][row].sum() == np.floor(0.15 * usable + 0.5)
    short = collate(
        make_collator(), [window_of(["▁ba"]), window_of(["▁ba", "n", "▁de"]), window_of(["<0xC3>", "<0xA9>"])]
    )
    assert short["target_mask"].sum(axis=1).tolist() == [1, 1, 0]
    capped = collate(make_collator(max_predictions=3), WINDOWS[:5])
    assert capped["target_mask"].shape == (5, 3)
    assert capped["target_mask"].all()


def test_every_subword_is_selected_equally_often() -> None:
    window = WINDOWS[0]
    chosen = collate(make_collator(), [window] * 4000)
    positions, real = chosen["target_positions"], chosen["target_mask"]
    subword = np.searchsorted(window.subword_starts, positions[real] - 1, side="right") - 1
    counts = np.bincount(subword, minlength=len(window.subword_ids))
    usable = window.subword_ids >= len(CONTROL)
    assert (counts[~usable] == 0).all()
    expected = 4000 * real[0].sum() / usable.sum()
    assert np.abs(counts[usable] / expected - 1).max() < 5 / np.sqrt(expected)
    size = (window.subword_ends - window.subword_starts)[subword]
    within = positions[real] - 1 - window.subword_starts[subword]
    for length in (2, 3, 4):  # one character uniformly inside the span
        shares = np.bincount(within[size == length], minlength=length) / np.count_nonzero(size == length)
        assert np.abs(shares - 1 / length).max() < 0.05


def test_what_becomes_of_the_selected_and_of_the_others() -> None:
    """80% masked, 10% replaced by others as long, 10% kept; nothing else is touched and no length changes."""
    outcomes = {"masked": 0, "replaced": 0, "kept": 0}
    front_changes = tail_changes = 0
    batch = collate(make_collator(mask_fraction=0.3), WINDOWS * 5)
    for row, window in enumerate(WINDOWS * 5):
        real = batch["target_mask"][row]
        line = batch["codepoints"][row, 1 : len(window.codepoints) + 1].copy()
        assert batch["mask"][row].sum() == len(window.codepoints) + 2
        for position in batch["target_positions"][row][real] - 1:
            at = np.flatnonzero((window.subword_starts <= position) & (position < window.subword_ends))[0]
            span = slice(int(window.subword_starts[at]), int(window.subword_ends[at]))
            now, was = line[span].copy(), window.codepoints[span]
            line[span] = was
            if (now == MASK).all():
                outcomes["masked"] += 1
            elif (now == was).all():
                outcomes["kept"] += 1
            else:
                outcomes["replaced"] += 1
                front = PIECES[window.subword_ids[at]].startswith("▁")
                piece = "".join(map(chr, now))
                assert ("▁" if front else "") + piece in PIECES
                front_changes += front
                tail_changes += not front
        assert (line == window.codepoints).all()
    total = sum(outcomes.values())
    assert outcomes["masked"] / total == pytest.approx(0.8, abs=0.015)
    assert front_changes > 100  # of "ba" by another such: 49 in 50 are others
    assert tail_changes > 100
    # Replaced by itself, now and then.
    assert outcomes["kept"] / total == pytest.approx(0.1 + 0.1 * 0.2, abs=0.02)


def test_a_subword_without_a_fellow_of_its_length_is_kept() -> None:
    batch = collate(make_collator(), [window_of(["▁alone"])] * 1000)
    text = batch["codepoints"][:, 1:6]
    masked = (text == MASK).all(axis=1)
    assert masked.mean() == pytest.approx(0.8, abs=0.05)
    assert (text[~masked] == [ord(c) for c in "alone"]).all()


def test_a_row_is_masked_by_its_sample_id_alone(batch: Arrays) -> None:
    some = [7, 150, 3]
    again = collate(make_collator(mask_fraction=0.15), [WINDOWS[i] for i in some], ids=some)
    for name, array in batch.items():
        np.testing.assert_array_equal(again[name], array[some])
    other = collate(make_collator(seed=1), WINDOWS)
    assert not np.array_equal(other["target_positions"], batch["target_positions"])
    twice = collate(make_collator(), [WINDOWS[0], WINDOWS[0]])
    assert not np.array_equal(twice["target_positions"][0], twice["target_positions"][1])


def test_the_rows_are_not_changed() -> None:
    window = random_window(1, 30)
    for array in window:
        array.flags.writeable = False
    collate(make_collator(), [window])


def test_long_windows_are_cropped_to_whole_subwords() -> None:
    window = random_window(3, 200)
    length = 64
    batch = collate(make_collator(length), [window] * 300)
    sizes = batch["mask"].sum(axis=1) - 2
    assert sizes.max() <= length - 8
    assert sizes.min() > length - 8 - 6
    text = "".join(map(chr, window.codepoints))
    begins = set()
    for row in range(300):
        line = batch["codepoints"][row, 1 : sizes[row] + 1]
        known = line != MASK
        fits = [
            begin
            for begin in sorted(set(window.subword_starts.tolist()))
            if begin + sizes[row] <= len(text)
            and np.mean(window.codepoints[begin : begin + sizes[row]][known] == line[known]) > 0.75
        ]
        assert len(fits) == 1
        begins.add(fits[0])
        assert fits[0] + sizes[row] in window.subword_ends
        assert not batch["target_mask"][row].all()
        assert (batch["target_positions"][row] <= sizes[row]).all()
    assert len(begins) > 80
    assert min(begins) < 60
    assert max(begins) > len(text) - 120


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match=r"objective.name: canine_s .* no vocabulary"):
        Config().collator(None, 128, 0)
    with pytest.raises(UserError, match=r"train.length: 8 .* at least 9"):
        make_collator(8)
    assert collate(make_collator(9), [window_of(["▁ba"])])["mask"].sum() == 3


class Output(NamedTuple):
    characters: torch.Tensor


class FakeEncoder(nn.Module):
    """A table of codepoints and positions; gathers the targets as targeted upsampling does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(64, width)

    def forward(self, codepoints: torch.Tensor, mask: torch.Tensor, *, targets_BP: torch.Tensor) -> Output:
        h_BCD = self.table((codepoints + torch.arange(codepoints.shape[1])) % 64) * mask[..., None]
        return Output(h_BCD.gather(1, targets_BP[..., None].expand(-1, -1, h_BCD.shape[-1])))


def test_the_loss_is_the_sum_over_the_real_targets(batch: Arrays) -> None:
    torch.manual_seed(0)
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    encoder, head = FakeEncoder(16), Config().build(16, len(PIECES))
    loss = head(encoder, tensors)
    h = encoder(tensors["codepoints"], tensors["mask"], targets_BP=tensors["target_positions"]).characters
    assert head.output is not None
    log_p = head.output(head.norm(nn.functional.gelu(head.dense(h), approximate="tanh"))).log_softmax(-1)
    real = tensors["target_mask"]
    gold = log_p.gather(2, tensors["target_ids"][..., None])[..., 0]
    assert loss.total.item() == pytest.approx(-gold[real].sum().item(), rel=1e-5)
    assert loss.num_targets.item() == real.sum().item()
    assert loss.num_correct.item() == (log_p.argmax(-1) == tensors["target_ids"])[real].sum().item()
    assert loss.total.item() / loss.num_targets.item() == pytest.approx(np.log(len(PIECES)), abs=0.3)
    chunks = zip(*(tensor.chunk(2) for tensor in tensors.values()), strict=True)
    halves = [head(encoder, dict(zip(tensors, parts, strict=True))) for parts in chunks]
    assert sum(half.total.item() for half in halves) == pytest.approx(loss.total.item(), rel=1e-5)


def test_columns_without_targets_are_not_encoded(batch: Arrays) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    encoder, head = FakeEncoder(16), Config().build(16, len(PIECES))
    seen: list[torch.Tensor] = []
    hook = encoder.register_forward_pre_hook(
        lambda _, args, given: seen.append(given["targets_BP"]), with_kwargs=True
    )
    head(encoder, tensors)
    hook.remove()
    used = int(tensors["target_mask"].sum(dim=1).max())
    assert used < tensors["target_mask"].shape[1]
    assert torch.equal(seen[0], tensors["target_positions"][:, :used])


def test_without_targets_the_loss_is_zero_and_can_be_differentiated() -> None:
    arrays = collate(make_collator(), [window_of(["<0xC3>", "<0xA9>"])])
    encoder, head = FakeEncoder(8), Config().build(8, len(PIECES))
    loss = head(encoder, {name: torch.from_numpy(array) for name, array in arrays.items()})
    assert (loss.total.item(), loss.num_targets.item(), loss.num_correct.item()) == (0, 0, 0)
    loss.total.backward()


def test_the_head_learns_the_targets_of_a_batch(batch: Arrays) -> None:
    torch.manual_seed(0)
    tensors = {name: torch.from_numpy(array[:4]) for name, array in batch.items()}
    encoder, head = FakeEncoder(32), Config().build(32, len(PIECES))
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.02)
    means = []
    for _ in range(60):
        loss = head(encoder, tensors)
        mean = loss.total / loss.num_targets
        means.append(mean.item())
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
    assert means[-1] < means[0] / 2


def test_compiled_or_not_the_head_gives_the_same(batch: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of fixed shapes, which a compiler or another device takes."""
    torch.manual_seed(0)
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    encoder, head = FakeEncoder(16), Config().build(16, len(PIECES))
    chosen = head(encoder, tensors)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    fixed = head(encoder, tensors)
    assert fixed.total.item() == pytest.approx(chosen.total.item(), rel=1e-5)
    assert fixed[1:] == chosen[1:]
