"""What the steps for GPUs are made of, as far as a machine without one can tell."""

import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.train import gpu_estimate
from benchmarks.train.gpu_step import make_batch
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.step import pretraining_task
from tokenfree.workflows.recipes import library


@pytest.mark.parametrize(("recipe", "more"), [("canine-s-tiny", {"next_sentence": True}), ("bert-tiny", {})])
def test_a_batch_has_what_the_model_reads(recipe: str, more: dict[str, bool]) -> None:
    mapping = library.read_based(recipe)
    mapping["objective"] = {**mapping["objective"], **more}
    built = build(PretrainRecipe, mapping, source=recipe)
    total, _ = pretraining_task(built, 500)(make_batch(built, 2, 500))
    total.backward()
    assert torch.isfinite(total)


def test_operations_are_written_down() -> None:
    device = gpu_estimate.Device(arithmetic=1e9, bandwidth=1e9)
    ledger = gpu_estimate.Ledger(device)
    with FakeTensorMode():
        x, layer = torch.empty(1000, 100), nn.Linear(100, 10)
        with ledger:
            y = nn.functional.gelu(layer(x))
            y.view(-1).sum()
    product = ledger.rows["addmm"]
    assert product.flops == 2 * 1000 * 100 * 10
    assert product.moved == 4 * (1000 * 100 + 100 * 10 + 10 + 1000 * 10)
    assert product.seconds == pytest.approx(product.flops / 1e9)
    assert ledger.rows["gelu"].seconds == pytest.approx(2 * 4 * 1000 * 10 / 1e9)
    assert ledger.rows["sum"].calls == 1
    assert set(ledger.rows) <= {"addmm", "gelu", "sum"}  # views move nothing


def test_attention_keeps_no_weights() -> None:
    ledger = gpu_estimate.Ledger(gpu_estimate.Device(arithmetic=1e9, bandwidth=1e9))
    q, k = torch.zeros(2, 3, 8, 4, requires_grad=True), torch.zeros(2, 3, 16, 4, requires_grad=True)
    gpu_estimate.fused_attention(ledger)(q, k, k, torch.zeros(2, 1, 1, 16), 0.1).sum().backward()
    forward, backward = ledger.rows["attention"], ledger.rows["attention_backward"]
    assert forward.flops == 2 * 2 * (2 * 3 * 8 * 16 * 4)
    assert backward.flops == 2.5 * forward.flops
    assert forward.moved == 4 * (2 * q.numel() + 2 * k.numel() + 2 * 16)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_estimate", "--recipe", "canine-s-tiny", "--batch", "2", "--rows", "100"])
    gpu_estimate.main()
    printed = capsys.readouterr().out
    assert ": an estimate\n" in printed
    assert "of what a large product reaches" in printed
    assert all(f"\n{name} " in printed for name in ("mm", "attention", "attention_backward", "optimizer, every 8"))
    assert "bmm" not in printed
