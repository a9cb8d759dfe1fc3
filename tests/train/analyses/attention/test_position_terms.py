"""How much of a matrix is a function of i - j, and what segments prefer."""

import math

import pytest
import torch

from tokenfree.train.analyses.attention import own_segment, shape_of, toeplitz_share


def test_a_function_of_the_offset_is_all_explained() -> None:
    places = torch.arange(12)
    by_offset = torch.randn(23, generator=torch.Generator().manual_seed(0))
    matrix = by_offset[places - places[:, None] + 11]
    assert toeplitz_share(matrix) == pytest.approx(1)
    assert shape_of(matrix).shift == 0


def test_numbers_by_hand() -> None:
    matrix = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    # The diagonal means are 3, 2 and 3; left are 4 + 4 of 8.75, the squares about the mean 2.75.
    assert toeplitz_share(matrix) == pytest.approx(1 - 8 / 8.75)
    assert shape_of(matrix).shift == pytest.approx(4 / math.sqrt(8.75 / 4))
    # Zero on average along every diagonal but the corners, where it has no choice.
    checks = torch.tensor([[1.0, 1.0, 0.0], [-1.0, -2.0, -1.0], [0.0, 1.0, 1.0]])
    assert toeplitz_share(checks) == pytest.approx(0, abs=1e-12)


def test_cls_apart() -> None:
    matrix = torch.arange(6.0)[None] - torch.arange(6.0)[:, None]
    matrix[0], matrix[:, 0] = 7, -3
    shape = shape_of(matrix)
    assert shape.toeplitz < 0.9
    assert shape.toeplitz_without_cls == pytest.approx(1)
    assert all(math.isnan(value) for value in shape_of(torch.full((4, 4), 0.3)))


def test_the_own_segment() -> None:
    assert own_segment(torch.tensor([[5.0, 3.0], [1.0, 2.0]])) == 1.5
    # What all keys of a query get changes nothing.
    assert own_segment(torch.tensor([[15.0, 13.0], [1.0, 2.0]])) == 1.5
    assert own_segment(torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 3.0], [1.0, 2.0, 3.0]])) == pytest.approx(2)
