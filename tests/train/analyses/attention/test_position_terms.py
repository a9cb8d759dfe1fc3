"""How much of a matrix is a function of i - j."""

import math

import pytest
import torch

from tokenfree.train.analyses.attention import toeplitz_share


def test_a_function_of_the_offset_is_all_explained() -> None:
    places = torch.arange(12)
    by_offset = torch.randn(23, generator=torch.Generator().manual_seed(0))
    matrix = by_offset[places - places[:, None] + 11]
    assert toeplitz_share(matrix) == pytest.approx(1)


def test_numbers_by_hand() -> None:
    matrix = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    # The diagonal means are 3, 2 and 3; left are 4 + 4 of 8.75, the squares about the mean 2.75.
    assert toeplitz_share(matrix) == pytest.approx(1 - 8 / 8.75)
    assert math.isnan(toeplitz_share(torch.full((4, 4), 0.3)))
    # Zero on average along every diagonal but the corners, where it has no choice.
    checks = torch.tensor([[1.0, 1.0, 0.0], [-1.0, -2.0, -1.0], [0.0, 1.0, 1.0]])
    assert toeplitz_share(checks) == pytest.approx(0, abs=1e-12)
