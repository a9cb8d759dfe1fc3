# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
"""Other ways to compute a training step, each with the same result. `speed.py` compares them on a GPU.

A variant changes the classes and functions of this process. Those that win move into the models.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from tokenfree.train.loop import step
from tokenfree.train.loop.step import ModelWithHead
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common.attention import Core, Heads, LayerBias, OffsetBias, PairValues, SharedBias
from tokenfree.train.model.common.basic import cast_for_products
from tokenfree.train.model.layers.bert import BertLayer
from tokenfree.train.model.upsamplers import repeat_concat
from tokenfree.train.objectives import base
from tokenfree.train.objectives.base import Loss

Change = Callable[[ModelWithHead], None]


def compile_all(task: ModelWithHead, **options: Any) -> None:
    """Compile the model with its head as one graph."""
    task.compile(fullgraph=True, dynamic=False, **options)


def compile_parts(task: ModelWithHead, **options: Any) -> None:
    """Compile the layers of the trunk and the other parts of the model separately."""
    encoder = task.encoder
    for module in (*encoder.trunk.layers, encoder.embedder, encoder.downsampler, encoder.upsampler):
        module.compile(fullgraph=True, dynamic=False, **options)
    compiled = functools.partial(torch.compile, fullgraph=True, dynamic=False, **options)
    task.head.logits = compiled(task.head.logits)
    base.score = compiled(base.score)


COMPILED = {"whole": compile_all, "parts": compile_parts}


def explicit_attention(task: ModelWithHead) -> None:
    """Compute the logits of attention with a bias that learns, as products and a softmax that the compiler fuses."""
    attend = Core.attend

    def explicit(
        core: Core,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor,
        bias: Tensor | None = None,
        of_pairs: PairValues | None = None,
    ) -> Tensor:
        if bias is None or of_pairs is not None:
            return attend(core, queries, keys, values, hidden, bias, of_pairs)
        logits = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)
        weights = (logits.float() + hidden + bias).softmax(dim=-1).to(values.dtype)
        return F.dropout(weights, core.dropout, core.training) @ values

    Core.attend = explicit


def joint_projections(task: ModelWithHead) -> None:
    """Compute queries, keys and values of self-attention as one product."""
    attend = BertLayer.attend

    def joint(
        layer: BertLayer,
        queries_BQD: Tensor,
        x_BUD: Tensor,
        valid_BU: Tensor,
        bias: LayerBias | None,
        global_BU: Tensor | None,
    ) -> Tensor:
        if queries_BQD is not x_BUD or type(layer.core).source is not Core.source:
            return attend(layer, queries_BQD, x_BUD, valid_BU, bias, global_BU)
        projections = (layer.query, layer.key, layer.value)
        weight = torch.cat([projection.weight for projection in projections])
        added = torch.cat([projection.bias for projection in projections])
        cast_BUD = cast_for_products(x_BUD)
        split = F.linear(cast_BUD, weight, added).unflatten(-1, (3, layer.num_heads, -1))
        q_BHUE, k_BHUE, v_BHUE = split.permute(2, 0, 3, 1, 4).unbind()
        of_layer = Heads(q_BHUE, k_BHUE, v_BHUE, valid_BU, cast_BUD, global_BK=global_BU)
        context_BHUE = layer.core(of_layer if bias is None else bias.bind(of_layer))
        return layer.attention_output(context_BHUE.transpose(1, 2).flatten(2))

    BertLayer.attend = joint


def product_convolution(task: ModelWithHead) -> None:
    """Compute the convolution of UP over characters as one product with windows laid side by side."""

    def convolve(x_BCD: Tensor, kernel_DDK: Tensor, bias_D: Tensor | None) -> Tensor:
        width = kernel_DDK.shape[2]
        num_rows = x_BCD.shape[1] - width + 1
        cast_BCD = cast_for_products(x_BCD)
        windows_BCX = torch.cat([cast_BCD[:, first : first + num_rows] for first in range(width)], dim=-1)
        return F.linear(windows_BCX, kernel_DDK.transpose(1, 2).flatten(1), bias_D)

    repeat_concat.convolve = convolve


def chunked_loss(task: ModelWithHead, chunk: int = 640) -> None:
    """Compute the cross entropy over chunks of targets. The logits of one chunk are in memory at a time."""

    def forward(head: base.MaskedHead, encoder: nn.Module, batch: Any) -> Loss:
        out = base.encode(encoder, batch)
        h_ND = head.norm(F.gelu(head.dense(out.characters), approximate="tanh")).flatten(0, 1)
        assert head.output is not None, "CANINE-S does not tie its output layer to a table"
        weight_VD = (
            head.output.weight() if isinstance(head.output, base.SpelledLinear) else head.output.weight
        )
        real_N = batch["target_mask"].flatten()
        gold_N = batch["target_ids"].flatten().masked_fill(~real_N, 0)
        hidden_N = real_N & (batch["target_kinds"].flatten() == base.MASKED)
        sums = _ChunkedLoss.apply(
            cast_for_products(h_ND), weight_VD, head.output.bias, gold_N, real_N, hidden_N, chunk
        )
        num_targets = real_N.sum()
        means = dict(
            zip(base.MASKED_ONLY_MEANS, ((sums[2], hidden_N.sum()), (sums[3], hidden_N.sum())), strict=True)
        )
        masked = Loss(sums[0], num_targets, sums[1], means)
        return masked if head.next_sentence is None else head.next_sentence(masked, out.pooled, batch)

    base.MaskedHead.forward = forward


class _ChunkedLoss(torch.autograd.Function):
    """Sums over rows of the loss, the right answers, and both of hidden targets; forward computes the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        h_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        gold_N: Tensor,
        real_N: Tensor,
        hidden_N: Tensor,
        chunk: int,
    ) -> tuple[Tensor, ...]:
        dtype = h_ND.dtype
        weight, of_h = weight_VD.to(dtype), torch.empty_like(h_ND)
        of_weight, of_bias = torch.zeros_like(weight_VD), torch.zeros_like(bias_V)
        sums = torch.zeros(4, device=h_ND.device)
        for first in range(0, len(h_ND), chunk):
            rows = slice(first, first + chunk)
            logits = F.linear(h_ND[rows], weight, bias_V.to(dtype)).float()
            gold, real, hidden = gold_N[rows], real_N[rows], hidden_N[rows]
            scores = logits.log_softmax(dim=-1)
            loss = -scores.gather(-1, gold[:, None])[:, 0] * real
            correct = (logits.argmax(dim=-1) == gold) & real
            sums += torch.stack([loss.sum(), correct.sum(), (loss * hidden).sum(), (correct & hidden).sum()])
            gradient = scores.exp_()
            gradient.scatter_add_(-1, gold[:, None], torch.full_like(gold[:, None], -1, dtype=torch.float32))
            gradient = (gradient * real[:, None]).to(dtype)
            of_h[rows] = gradient @ weight
            of_weight += gradient.T @ h_ND[rows]
            of_bias += gradient.sum(dim=0)
        ctx.save_for_backward(of_h, of_weight, of_bias)
        counts = sums[[1, 3]].to(torch.int64)
        ctx.mark_non_differentiable(counts[0], sums[2], counts[1])
        return sums[0], counts[0], sums[2], counts[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_h, of_weight, of_bias = ctx.saved_tensors
        factor = gradients[0]
        return of_h * factor.to(of_h.dtype), of_weight * factor, of_bias * factor, None, None, None, None


_open_contexts = contextlib.ExitStack()  # open until the process ends


def backend(*names: str) -> Change:
    """Return a change that makes scaled dot product attention prefer these backends."""
    order = [getattr(SDPBackend, name) for name in (*names, "MATH")]

    def change(task: ModelWithHead) -> None:
        _open_contexts.enter_context(sdpa_kernel(order, set_priority=True))

    return change


def flex(task: ModelWithHead) -> None:
    """Compute full attention by flex attention, with the position bias as a function of a pair. It has no dropout."""
    attend_to_all = FullAttention.forward

    def forward(core: FullAttention, of_layer: Heads) -> Tensor:
        bias = of_layer.bias.bias if isinstance(of_layer.bias, SharedBias) else of_layer.bias
        if of_layer.queries_BHQE.shape[2] != of_layer.keys_BHKE.shape[2] or (core.training and core.dropout):
            return attend_to_all(core, of_layer)
        valid_BK = of_layer.valid_BK
        assert bias is None or isinstance(bias, OffsetBias)

        def score(logit: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            if bias is not None:
                logit = logit + bias.by_offset[h, k - q + bias.by_offset.shape[1] // 2]
            return torch.where(valid_BK[b, k], logit, -1e30)

        # With the default blocks, the backward pass needs 311 KB of shared memory; an H200 has 232 KB.
        blocks = {
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_M1": 32,
            "BLOCK_N1": 64,
            "BLOCK_M2": 64,
            "BLOCK_N2": 32,
        }
        context: Any = flex_attention(
            of_layer.queries_BHQE,
            of_layer.keys_BHKE,
            of_layer.values_BHKE,
            score,
            kernel_options={**blocks, "num_stages": 2},
        )
        return context

    FullAttention.forward = forward


def no_attention_dropout(task: ModelWithHead) -> None:
    """Keep all attention weights. Another model, to which `flex` is compared."""
    for module in task.modules():
        if isinstance(module, Core):
            module.dropout = 0.0


def pinned_input(task: ModelWithHead) -> None:
    """Copy a micro batch from pinned memory, so that the copy does not wait for the device."""

    def on_device(arrays: Any, device: torch.device) -> dict[str, Tensor]:
        pinned = {name: torch.from_numpy(values).pin_memory() for name, values in arrays.items()}
        return {name: values.to(device, non_blocking=True) for name, values in pinned.items()}

    step.on_device = on_device


CHANGES: dict[str, Change] = {
    "joint projections": joint_projections,
    "product convolution": product_convolution,
    "chunked loss": chunked_loss,
    "cuDNN attention": backend("CUDNN_ATTENTION", "EFFICIENT_ATTENTION"),
    "efficient attention": backend("EFFICIENT_ATTENTION"),
    "no attention dropout": no_attention_dropout,
    "explicit attention": explicit_attention,
    "flex attention": flex,
    "pinned input": pinned_input,
}
ON_CUDA = {"cuDNN attention", "efficient attention", "flex attention", "pinned input"}
