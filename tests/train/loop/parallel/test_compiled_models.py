"""Encoder and head compile to one graph, without breaks, shapes that depend on data, or waits for the device."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.workflows.recipes import library

MODELS = (
    "canine-s-tiny",
    "canine-c-tiny",
    "bert-tiny",
    "ms-transformer-tiny",
    "canine-s-longformer-tiny",
    "byte2word-tiny",
)
OTHERS = [
    name
    for name in library.names()
    if name.endswith("-tiny")
    and name not in MODELS
    and {*library.read_based(name)} == {"model", "objective", "train"}
]
QUICK = ("canine-s-tiny", "byte2word-tiny")
SMALL = {
    "train": {"steps": 2, "global_batch": 4, "streams": 1, "micro_batch": None},
}


@pytest.fixture(autouse=True)
def _no_graphs_of_other_tests() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def loop_of(name: str, corpus: str, device: str = "cpu") -> Loop:
    return Loop(
        build(PretrainRecipe, merge(library.read_based(name), SMALL), source=name), corpus, device=device
    )


def batches_of(loop: Loop) -> list[dict[str, Tensor]]:
    """The first two batches of training, on the loop's device."""
    with loop.loader.batches(0, 2) as batches:
        return [
            {name: torch.from_numpy(values).to(loop.device) for name, values in arrays.items()}
            for arrays in batches
        ]


def breaks_in(function: Callable[..., Any], *arguments: Any) -> tuple[list[str], int]:
    """The reasons for which tracing was broken off, and the number of graphs.

    Reading a value, `nonzero` and indexing with a mask count; with `fullgraph` they would be traced over.
    """
    counters.clear()
    torch.compile(function, backend="eager")(*arguments)
    return list(counters["graph_break"]), counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in (*MODELS, *OTHERS)],
)
def test_one_graph(name: str, corpus: str) -> None:
    loop = loop_of(name, corpus)
    assert breaks_in(loop.model, batches_of(loop)[0]) == ([], 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x[x > 0] + 1,
        lambda x: x.nonzero() + 1,
        lambda x: x[: int(x[0])],
    ],
)
def test_breaks_are_seen(function: Callable[[Tensor], Tensor]) -> None:
    assert breaks_in(function, torch.ones(2))[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a C++ compiler is at work
@pytest.mark.parametrize("name", MODELS)
def test_compiled_training(name: str, corpus: str) -> None:
    loop = loop_of(name, corpus)
    first, second = batches_of(loop)
    compiled = torch.compile(loop.model, fullgraph=True, dynamic=False)
    wanted, _ = loop.model(first)
    wanted.backward()
    gradients = {
        key: parameter.grad for key, parameter in loop.model.named_parameters() if parameter.grad is not None
    }
    loop.model.zero_grad()

    total, _ = compiled(first)
    total.backward()
    torch.testing.assert_close(total, wanted, rtol=1e-4, atol=0)
    for key, parameter in loop.model.named_parameters():
        if key in gradients:
            torch.testing.assert_close(parameter.grad, gradients[key], rtol=1e-3, atol=1e-3, msg=key)
    with torch.compiler.set_stance("fail_on_recompile"):  # other words, other numbers of targets
        torch.testing.assert_close(compiled(second)[0], loop.model(second)[0], rtol=1e-4, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_a_step_never_waits_for_the_device(name: str, corpus: str) -> None:
    loop = loop_of(name, corpus, "cuda")
    first, second = batches_of(loop)
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3, fused=True)

    def step(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            total, _ = loop.model(batch)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        return total.detach()

    step(first)  # libraries of the device start here
    torch.cuda.set_sync_debug_mode("error")
    try:
        total = step(second)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert total.isfinite()
