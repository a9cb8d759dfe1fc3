"""Compare ways to compute a pretraining step on a GPU: sequences per second, share of the peak, memory, losses.

    python -m benchmarks.gpu.speed --output FOLDER    # about seven minutes, on one GPU
    python -m benchmarks.gpu.speed --check            # every part at tiny sizes, on a CPU

A step is that of `tokenfree pretrain` (train/loop/step.py): micro batches, forward and backward in bfloat16 with
float32 weights, then the recipe's optimizer. The text is Python's help, because hash buckets of frequent characters
collide in the backward pass. FOLDER/results.jsonl gets a line per part: the losses of 20 steps, and the median time
of whole steps. The share of the peak is that of a large product on the same device (train/loop/meter.py).
"""

from __future__ import annotations

import argparse
import functools
import pydoc_data.topics as topics
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.gpu.parts import NEEDS_CUDA, Child, Part, Result, Runner, run_child
from benchmarks.gpu.variants import CHANGES, COMPILED, ON_CUDA
from benchmarks.timing import median
from tokenfree.core.settings import build, merge
from tokenfree.core.signals import Stop
from tokenfree.preprocess.text.specials import CLS
from tokenfree.train.batches.base import MASKED, Arrays
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.parallel import SingleWorker
from tokenfree.train.loop.step import StepNumbers, TrainingStep, on_device, pretraining_task
from tokenfree.train.torch_state import default_settings, set_determinism
from tokenfree.workflows.recipes import library

TEXT = "".join(topics.topics.values())
CANINE, FAST = "canine-s-base", "canine-fast-base"
PEERS = ("transformers", "bert")
LOSS_STEPS = 20
LEARNING_RATES = {"lamb": 2e-3, "adamw": 1e-4}
TINY: dict[str, Any] = {
    "model": {
        "width": 32,
        "embedder": {"buckets": 64, "max_characters": 256},
        "trunk": {"layers": 1, "heads": 4, "dropout": 0.0},
    },
    "objective": {"max_predictions": 8},
    "train": {"length": 128, "precision": "float32"},
}
# Where the time of a kernel belongs, by its name. The first match counts.
KINDS = {
    "attention": r"fmha|flash|attention|sdpa|flex",
    "convolutions": r"conv|implicit|wgrad|dgrad",
    "matrix products": r"gemm|cutlass|nvjet|xmma|cublas|splitK",
    "embedding": r"embedding|sort|radix|scan|index",
    "optimizer": r"multi_tensor|lpnorm|foreach",
    "fused by the compiler": r"triton",
    "softmax and loss": r"softmax|nll|argmax",
    "LayerNorm": r"layer_norm|LayerNorm|GammaBeta",
    "copies and casts": r"copy|memcpy|memset|CatArray",
    "other element-wise": r"elementwise|vectorized|dropout",
    "sums": r"reduce",
}


@dataclass(frozen=True)
class Setup:
    """How a part computes its steps: a recipe or a peer, what is compiled, and the variants that it uses."""

    model: str
    compiled: str | None = None  # "whole" or "parts"
    changes: tuple[str, ...] = ()
    mode: str | None = None  # of torch.compile
    micro_batch: int = 32
    sequences: int = 256  # of a step
    optimizer: str | None = None  # None: the recipe's
    profile: bool = False
    check: bool = False

    @property
    def vocabulary(self) -> int:
        return 200 if self.check else 120_000

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.check else "cuda")

    def recipe(self, global_batch: int) -> PretrainRecipe:
        name = CANINE if self.model in PEERS else self.model
        train = {"micro_batch": self.micro_batch, "global_batch": global_batch}
        mapping = merge(library.read_based(name), {"train": train})
        if self.optimizer is not None:
            mapping["train"]["optimizer"] = {"name": self.optimizer}
        return build(PretrainRecipe, merge(mapping, TINY if self.check else {}), source=name)

    def compile_options(self) -> dict[str, Any]:
        if self.check:
            # One part is built as on a GPU, which takes minutes on a CPU.
            return {"backend": "inductor" if self.model == "bert" else "aot_eager"}
        return {} if self.mode is None else {"mode": self.mode}


def main() -> None:
    if run_child(measure):
        return
    options = parse()
    if not options.check and not torch.cuda.is_available():
        print("benchmarks.gpu.speed: no CUDA device here; --check runs on a CPU", file=sys.stderr)
        raise SystemExit(2)
    gigabytes = 100.0 if options.check else torch.cuda.mem_get_info()[0] / 2**30
    print("CPU" if options.check else torch.cuda.get_device_name(), f"torch {torch.__version__}", flush=True)
    until = time.monotonic() + options.seconds
    runner = Runner("benchmarks.gpu.speed", options.output, until=until, gigabytes=0.9 * gigabytes)
    runner.run([part for part in parts(options.check) if re.search(options.only, part.name)])
    raise SystemExit(any("failed" in result for result in runner.results.values()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("gpu-speed"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=420, help="end after this time")
    parser.add_argument("--only", default="", metavar="PATTERN", help="parts whose names match")
    parser.add_argument("--check", action="store_true", help="tiny models, on a CPU")
    return parser.parse_args()


def parts(check: bool) -> list[Part]:
    """Return the parts in the order of their expected gain (`benchmarks/gpu/estimate.py`)."""

    def part(name: str, model: str, *changes: str, gigabytes: float = 15, **options: Any) -> Part:
        options |= {"micro_batch": 2} if check else {}
        return Part(name, asdict(Setup(model, changes=changes, check=check, **options)), gigabytes)

    whole: dict[str, Any] = {"compiled": "whole"}
    graphs = {**whole, "mode": "reduce-overhead"}
    in_parts: dict[str, Any] = {"compiled": "parts"}
    return [
        part("canine", CANINE, gigabytes=17),
        part("canine compiled", CANINE, **whole, profile=True),
        part("fast", FAST, gigabytes=24),
        part("fast compiled", FAST, **whole, gigabytes=20, profile=True),
        part("transformers compiled", "transformers", **whole, gigabytes=33),
        part("canine 128", CANINE, **whole, micro_batch=128, gigabytes=42),
        part("canine joint projections", CANINE, "joint projections", **whole),
        part("canine product convolution", CANINE, "product convolution", **whole),
        part("canine graphs", CANINE, **graphs),
        part("fast explicit attention", FAST, "explicit attention", **whole, gigabytes=30),
        part("fast product convolution", FAST, "product convolution", **whole, gigabytes=22),
        part("bert compiled", "bert", **whole),
        part("transformers", "transformers", gigabytes=46),
        part("canine 64", CANINE, **whole, micro_batch=64, gigabytes=22),
        part("fast 128", FAST, **whole, micro_batch=128, gigabytes=60),
        part("canine 16", CANINE, **whole, micro_batch=16),
        part("canine in parts", CANINE, **in_parts),
        part("fast without dropout", FAST, "no attention dropout", **in_parts, gigabytes=20),
        part("fast flex", FAST, "no attention dropout", "flex attention", **in_parts, gigabytes=20),
        part("cuDNN attention", CANINE, "cuDNN attention", **whole),
        part("efficient attention", CANINE, "efficient attention", **whole),
        part("chunked loss", CANINE, "chunked loss", gigabytes=17),
        part("fused AdamW", CANINE, **whole, optimizer="adamw"),
        part("pinned input", CANINE, "pinned input", **whole),
    ]


def difference(result: Result, reference: Result) -> float:
    """Return the largest relative difference of the losses of two parts; infinity if one has none."""
    losses, expected = result.get("losses"), reference.get("losses")
    if not losses or not expected:
        return float("inf")
    return max(abs(one / other - 1) for one, other in zip(losses, expected, strict=True))


def measure(child: Child) -> Result:
    """Train as a part says. Return the losses of some steps, then the times of whole steps."""
    setup = Setup(**{**child.options, "changes": tuple(child.options["changes"])})
    if setup.check and (ON_CUDA & {*setup.changes} or setup.mode):
        return {"line": NEEDS_CUDA}
    torch.manual_seed(0)
    with default_settings():
        training = (PeerTraining if setup.model in PEERS else OurTraining)(setup)
        began = time.perf_counter()
        losses = [training.step(make_batch(setup, 0, setup.micro_batch))]
        first_step = time.perf_counter() - began
        with child.alone():
            batches = [make_batch(setup, number, setup.micro_batch) for number in range(1, LOSS_STEPS)]
            losses += [training.step(batch) for batch in batches[: 1 if setup.check else None]]
            whole = make_batch(setup, LOSS_STEPS, 4 if setup.check else setup.sequences)
            reset_memory(setup.device)
            seconds = [timed(training, whole, setup.device) for _ in range(2 if setup.check else 9)][1:]
            peak_memory = 0 if setup.check else torch.cuda.max_memory_allocated()
            kernels = kernels_of(training, whole) if setup.profile and not setup.check else {}
        share = training.utilisation(whole, median(seconds))
    speed = len(whole["codepoints"]) / median(seconds)
    text = "" if share is None else f"{share:6.1%} of the peak, "
    line = f"{speed:8.1f} sequences/s, {text}{peak_memory / 2**30:5.1f} GiB, loss {losses[0]:.3f} to {losses[-1]:.3f}"
    return {
        "line": line,
        "setup": asdict(setup),
        "device": "CPU" if setup.check else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "sequences_per_second": speed,
        "milliseconds": [
            round(1000 * value * setup.micro_batch / len(whole["mask"]), 2) for value in seconds
        ],
        "share_of_peak": share,
        "gigabytes": peak_memory / 2**30,
        "first_step_seconds": first_step,
        "losses": losses,
        **kernels,
    }


class OurTraining:
    def __init__(self, setup: Setup) -> None:
        recipe = setup.recipe(setup.sequences)
        self._rate = LEARNING_RATES[recipe.train.optimizer.name]
        with setup.device:
            task = pretraining_task(recipe, setup.vocabulary)
        task.to(setup.device).head.learn(pieces(setup.vocabulary), None)
        optimizer: Any = recipe.train.optimizer.build(task)
        for change in setup.changes:
            CHANGES[change](task)
        if setup.compiled is not None:
            import torch._inductor  # imported here because it imports many modules

            set_determinism(0)
            COMPILED[setup.compiled](task, **setup.compile_options())
        if setup.mode == "reduce-overhead":  # graphs add to gradients in place
            optimizer.zero_grad = functools.partial(optimizer.zero_grad, set_to_none=False)
            for parameter in task.parameters():
                parameter.grad = torch.zeros_like(parameter)
        self._step = TrainingStep(
            recipe.train,
            task,
            SingleWorker(task),
            optimizer,
            None,
            stop=Stop(),
            device=setup.device,
            world_size=1,
        )
        precision = recipe.train.precision
        self._meter = Meter(task.encoder, task.head, device=setup.device, precision=precision)

    def step(self, arrays: Arrays) -> float:
        """Train on a batch in micro batches, and return the loss in nats per target."""
        return self._step.take(arrays, StepNumbers(1, 0, self._rate, 0.0))["loss"]

    def utilisation(self, arrays: Arrays, seconds: float) -> float:
        return self._meter.utilisation(arrays, seconds)


class PeerTraining:
    """transformers.CanineModel, or BertModel over as much text, with the same softmax and fused AdamW."""

    def __init__(self, setup: Setup) -> None:
        from transformers import BertConfig, BertModel, CanineConfig, CanineModel

        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
        fields: dict[str, Any] = small if setup.check else {}
        if setup.model == "bert":
            model: Any = BertModel(BertConfig(vocab_size=setup.vocabulary, **fields))
        else:
            model = CanineModel(CanineConfig(**fields))
        self._setup, self._width = setup, model.config.hidden_size
        self._model = nn.ModuleDict({"encoder": model, "head": nn.Linear(self._width, setup.vocabulary)})
        self._model.to(setup.device).train()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATES["adamw"], fused=True)
        self._loss = self._compute_loss
        if setup.compiled is not None:
            self._loss = torch.compile(self._compute_loss, dynamic=False, **setup.compile_options())

    def _compute_loss(self, batch: dict[str, Tensor]) -> Tensor:
        ids, mask, positions = batch["codepoints"], batch["mask"], batch["target_positions"]
        if self._setup.model == "bert":  # four characters a subword
            ids, mask, positions = ids[:, ::4] % self._setup.vocabulary, mask[:, ::4], positions // 4
        with torch.autocast(self._setup.device.type, torch.bfloat16, enabled=not self._setup.check):
            rows = self._model["encoder"](ids, attention_mask=mask.long()).last_hidden_state
            logits = self._model["head"](rows.gather(1, positions[..., None].expand(-1, -1, self._width)))
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), batch["target_ids"].flatten())

    def step(self, arrays: Arrays) -> float:
        total, size = 0.0, len(arrays["mask"])
        for first in range(0, size, self._setup.micro_batch):
            micro = {name: values[first : first + self._setup.micro_batch] for name, values in arrays.items()}
            loss = self._loss(on_device(micro, self._setup.device)) * (self._setup.micro_batch / size)
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(total)

    def utilisation(self, arrays: Arrays, seconds: float) -> None:
        return None


Training = OurTraining | PeerTraining


def pieces(number: int) -> list[str]:
    words = sorted(set(TEXT.split()))
    return [words[index % len(words)] for index in range(number)]


def make_batch(setup: Setup, number: int, size: int) -> Arrays:
    """Return windows of text, which differ by `number`. A target depends on the characters around it."""
    recipe = setup.recipe(size)
    length, num_targets = recipe.train.length, recipe.objective.max_predictions
    generator = np.random.default_rng((number, size))
    text = np.frombuffer(TEXT.encode("utf-32-le"), dtype=np.int32).astype(np.int64)
    codepoints = text[generator.integers(len(text) - length, size=size)[:, None] + np.arange(length)]
    codepoints[:, 0] = CLS
    sizes = length - 6 - generator.integers(length // 10, size=size)
    mask = np.arange(length) < sizes[:, None]
    codepoints[~mask] = 0
    positions = np.sort(generator.integers(1, sizes[:, None] - 1, size=(size, num_targets)), axis=1)
    previous, current, following = (
        np.take_along_axis(codepoints, positions + step, axis=1) for step in (-1, 0, 1)
    )
    return {
        "codepoints": codepoints,
        "mask": mask,
        "segments": np.zeros_like(codepoints),
        "from_elsewhere": generator.integers(2, size=size),
        "target_positions": positions,
        "target_ids": (previous * 7919 + current * 104_729 + following) % setup.vocabulary,
        "target_mask": np.ones((size, num_targets), dtype=bool),
        "target_kinds": np.full((size, num_targets), MASKED),
        "sample_ids": np.arange(size),
        "num_characters": sizes - 1,
    }


def reset_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def timed(training: Training, arrays: Arrays, device: torch.device) -> float:
    """Return the seconds of a step on the device, which is idle before and after."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    training.step(arrays)
    wait()
    return time.perf_counter() - began


def kernels_of(training: Training, arrays: Arrays) -> Result:
    """Return the milliseconds of a step by kind of kernel, and those of the slowest kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        training.step(arrays)
        torch.cuda.synchronize()
    by_kind, by_name = Counter[str](), Counter[str]()
    for event in profile.key_averages():
        milliseconds = event.self_device_time_total / 1000
        kinds = (kind for kind, names in KINDS.items() if re.search(names, event.key, re.IGNORECASE))
        by_kind[next(kinds, "other")] += milliseconds
        by_name[event.key[:100]] += milliseconds
    return {
        "kinds": {kind: round(value, 1) for kind, value in by_kind.most_common()},
        "kernels": {name: round(value, 1) for name, value in by_name.most_common(30)},
    }


if __name__ == "__main__":
    main()
