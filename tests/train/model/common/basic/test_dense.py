"""Dense layers by oneDNN: the same as nn.Linear, to rounding, in outputs and gradients."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from tokenfree.train.model.common import basic as dense


@pytest.fixture(params=[True, False], ids=["onednn", "mkl"])
def by_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(dense, "mkl_is_slow", lambda: request.param)
    return request.param


@pytest.mark.parametrize("shape", [(105, 160), (2, 53, 160), (2, 0, 160), (160,), (2, 9, 6, 160), (2, 160)])
@pytest.mark.parametrize("biased", [True, False])
def test_equals_linear(by_onednn: bool, shape: tuple[int, ...], biased: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(130, 160, requires_grad=True)
    bias = torch.randn(130, requires_grad=True) if biased else None
    inputs = [x, weight, bias] if bias is not None else [x, weight]
    ours, wanted = dense.linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-5)
    by = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad((ours * by).sum(), inputs),
        torch.autograd.grad((wanted * by).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


@given(
    rows=st.integers(2, 40),
    inner=st.integers(1, 90),
    columns=st.integers(1, 70),
    biased=st.booleans(),
    strided=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40)
def test_no_less_exact_than_the_type_allows(
    rows: int, inner: int, columns: int, biased: bool, strided: bool, seed: int
) -> None:
    """Products and gradients against sums in float64: off by rounding, which grows with what is summed, and no more."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this PyTorch has no oneDNN")
    torch.manual_seed(seed)
    x = torch.randn(inner, rows).t() if strided else torch.randn(rows, inner)
    inputs = [x, torch.randn(columns, inner), *([torch.randn(columns)] if biased else [])]
    by = torch.randn(rows, columns)

    def results(fast: bool, dtype: torch.dtype, change: Any) -> list[Tensor]:
        given = [change(tensor.to(dtype)).requires_grad_() for tensor in inputs]
        bias = given[2] if biased else None
        output = (
            dense._OneDnnLinear.apply(given[0], given[1], bias)
            if fast
            else F.linear(given[0], given[1], bias)
        )
        return [output, *torch.autograd.grad((output * change(by.to(dtype))).sum(), given)]

    ours = results(True, torch.float32, lambda tensor: tensor.clone(memory_format=torch.preserve_format))
    exact, sizes = (results(False, torch.float64, change) for change in (torch.clone, torch.abs))
    longest = max(rows, inner, columns) + 1
    for one, other, size in zip(ours, exact, sizes, strict=True):
        assert ((one - other).abs() <= longest * torch.finfo(torch.float32).eps * size).all()


def test_inputs_that_do_not_lie_in_a_row(by_onednn: bool) -> None:
    x, weight = torch.randn(160, 130).t(), torch.randn(160, 130).t()
    torch.testing.assert_close(dense.linear(x, weight), F.linear(x, weight), atol=1e-4, rtol=1e-5)


def test_only_wanted_gradients(by_onednn: bool) -> None:
    layer = dense.Dense(160, 130)
    layer(torch.randn(130, 160)).sum().backward()
    assert layer.weight.grad is not None
    layer.requires_grad_(False)
    x = torch.randn(130, 160, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_stay_what_they_are(by_onednn: bool, dtype: torch.dtype) -> None:
    assert dense.Dense(160, 130).to(dtype)(torch.randn(130, 160, dtype=dtype)).dtype == dtype


def test_autocast(by_onednn: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert dense.Dense(160, 130)(torch.randn(130, 160)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("cpuinfo", "slow"),
    [
        ("vendor_id : AuthenticAMD\nflags : sse2 avx2 avx512f avx512bw", True),
        ("vendor_id : AuthenticAMD\nflags : sse2 avx2", False),
        ("vendor_id : GenuineIntel\nflags : sse2 avx2 avx512f", False),
        (None, False),
    ],
)
def test_mkl_is_slow_on_other_cpus_with_avx512(
    cpuinfo: str | None, slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    monkeypatch.setattr(dense, "Path", lambda path: file if path == "/proc/cpuinfo" else Path(path))
    usable = torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    assert dense.mkl_is_slow.__wrapped__() == (slow and usable)


@pytest.mark.parametrize("shape", [(7,), (2, 9, 3), (2, 0)])
def test_embedding_and_its_gradient_equal_those_of_pytorch(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    table, index = torch.randn(5, 4, requires_grad=True), torch.randint(5, shape)
    ours, wanted = dense.embedding(index, table), F.embedding(index, table)
    assert torch.equal(ours, wanted)
    by = torch.randn_like(wanted)
    assert torch.equal(*(torch.autograd.grad((found * by).sum(), table)[0] for found in (ours, wanted)))


@pytest.mark.parametrize("row", [-1, 5])
def test_embedding_refuses_rows_beyond_the_table(row: int) -> None:
    with pytest.raises(IndexError):
        dense.embedding(torch.tensor([[0, row]]), torch.randn(5, 4))
