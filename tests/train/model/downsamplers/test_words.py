"""Sums, maxima and softmax over the characters of each word, against loops over words, in values and gradients."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokenfree.train.model.downsamplers.words import (
    WordSpans,
    find_words,
    largest_in_words,
    softmax_in_words,
    sum_over_words,
)


def spans(words: list[int]) -> list[tuple[int, int]]:
    """Start and end of each word, from the sizes."""
    ends = [sum(words[: number + 1]) for number in range(len(words))]
    return list(zip([0, *ends], ends, strict=False))


def slow_words(x_BCD: Tensor, sizes: list[list[int]], kind: str, least: float) -> Tensor:
    """[B, U, D]: the sum or the maximum of each word, `least` or 0 for one without characters."""
    rows = []
    for b, words in enumerate(sizes):
        of_words = []
        for start, end in spans(words):
            inside = x_BCD[b, start:end]
            if kind == "sum":
                of_words.append(inside.sum(dim=0))
            else:
                of_words.append(torch.cat([inside, torch.full_like(x_BCD[b, :1], least)]).amax(dim=0))
        rows.append(torch.stack(of_words))
    return torch.stack(rows)


def slow_softmax(logits_BC: Tensor, sizes: list[list[int]]) -> Tensor:
    rows = []
    for b, words in enumerate(sizes):
        weights = [logits_BC[b, start:end].softmax(dim=0) for start, end in spans(words)]
        beyond = logits_BC.new_zeros(logits_BC.shape[1] - sum(words))
        rows.append(torch.cat([*weights, beyond]))
    return torch.stack(rows)


def same(one: Tensor, other: Tensor, x: Tensor) -> None:
    by = torch.randn_like(one)
    torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
    gradients = (
        torch.autograd.grad((found * by).sum(), x, retain_graph=True, materialize_grads=True)[0]
        for found in (one, other)
    )
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


@given(
    sizes=st.integers(1, 5).flatmap(
        lambda most: st.lists(
            st.lists(st.integers(0, 5), min_size=most, max_size=most), min_size=1, max_size=3
        )
    ),
    padding=st.integers(0, 4),
    scale=st.sampled_from([1.0, 300.0]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25)
def test_words_equal_loops(sizes: list[list[int]], padding: int, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    ends = torch.tensor(sizes).cumsum(dim=1)
    num_characters = max(int(ends.max()), 1) + padding
    real = torch.arange(num_characters) < ends[:, -1:]
    words: WordSpans = find_words(real, ends)
    assert words.real_BC.tolist() == real.tolist()
    x = (scale * torch.randn(len(sizes), num_characters, 3, dtype=torch.float64)).requires_grad_()
    inside = x * real[..., None]
    same(sum_over_words(inside, words), slow_words(inside, sizes, "sum", 0), x)
    least = -0.5 * scale
    below = x.masked_fill(~real[..., None], least)
    same(largest_in_words(below, words, least), slow_words(below, sizes, "maximum", least), x)
    logits = x[..., 0]
    same(softmax_in_words(logits, words), slow_softmax(logits, sizes), x)
