"""Cost of position encodings relative to absolute positions at the input: python -m benchmarks.train.positions

    python -m benchmarks.train.positions --length 128

All encodings share one BERT-base encoder (12 layers, width 768, 12 heads, 30,522 symbols) and its AdamW, so
that weights and memory are the same. Only the position encoding of the trunk changes between steps. Each step
with an encoding is measured between two without. Training is forward, backward and optimizer with a loss at
15% of the tokens; inference is a forward pass without gradients. The median, minimum and maximum over the
rounds are printed.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.timing import median
from tokenfree.core.settings import build
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Encoder, ModelConfig

SYMBOLS = 30_522
MODES = ("training", "inference")
BASE = "absolute only"
CODES: dict[str, dict[str, Any]] = {
    BASE: {"positions": "none"},
    "diet_abs 64, layer-wise": {"positions": {"name": "diet_abs"}},
    "diet_abs 128, layer-wise": {"positions": {"name": "diet_abs", "rank": 128}},
    "diet_abs 64, own": {"positions": {"name": "diet_abs", "sharing": "none"}},
    "diet_rel, own": {"positions": {"name": "diet_rel"}},
    "diet_rel, layer-wise": {"positions": {"name": "diet_rel", "sharing": "layer_wise"}},
    "t5": {"positions": "t5"},
    "tupe": {"positions": "tupe"},
    "shaw": {"positions": "shaw"},
    "shaw, with values": {"positions": {"name": "shaw", "values": True}},
}


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    encoder, codes = make_encoder(options), {name: make_code(fields) for name, fields in CODES.items()}
    steps = {
        "training": make_training(encoder, codes, options),
        "inference": make_inference(encoder, options),
    }
    print(
        f"{options.batch} x {options.length} tokens, {options.threads} thread(s), dropout {options.dropout}"
    )
    for mode in options.modes:
        step = steps[mode]
        for name, quotients in measure(encoder, codes, step, options.rounds).items():
            print(
                f"{mode:10} {name:26} {median(quotients) - 1:+7.1%} "
                f"({min(quotients) - 1:+.1%} to {max(quotients) - 1:+.1%})",
                flush=True,
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, help="examples of a step (default: 1,024 tokens' worth)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--only", nargs="*", choices=CODES, help="codes to measure beside the base")
    options = parser.parse_args()
    options.batch = options.batch or max(1, 1024 // options.length)
    for name in list(CODES)[1:]:
        if options.only and name not in options.only:
            del CODES[name]
    return options


def make_encoder(options: argparse.Namespace) -> Encoder:
    mapping = {
        # One hash with BERT's number of pieces as buckets is the same as a vocabulary's table.
        "embedder": {"hashes": 1, "buckets": SYMBOLS, "max_characters": 512, "segments": 2},
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"dropout": options.dropout},
    }
    return build(ModelConfig, mapping, source="benchmark").build()


def make_code(fields: dict[str, Any]) -> nn.Module:
    config = build(TrunkConfig, fields, source="benchmark")
    return config.positions.build(ModelConfig().dimensions, config)


def make_training(
    encoder: Encoder, codes: dict[str, nn.Module], options: argparse.Namespace
) -> Callable[[], None]:
    head = nn.Linear(encoder.width, SYMBOLS)
    parameters = [
        *encoder.parameters(),
        *head.parameters(),
        *(p for code in codes.values() for p in code.parameters()),
    ]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    symbols, mask = batch_of(options)
    targets = torch.randint(1, options.length, (options.batch, round(0.15 * options.length)))
    wanted = torch.randint(SYMBOLS, targets.shape)

    def step() -> None:
        encoder.train()
        optimizer.zero_grad()
        rows = encoder(symbols, mask, None, targets).characters
        F.cross_entropy(head(rows).flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()

    return step


def make_inference(encoder: Encoder, options: argparse.Namespace) -> Callable[[], None]:
    symbols, mask = batch_of(options)

    def step() -> None:
        if encoder.trunk.positions.training:  # clears what the encodings keep between calls
            encoder.eval()
        with torch.inference_mode():
            encoder(symbols, mask)

    return step


def batch_of(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    mask = (torch.arange(options.length) < 0.9 * options.length).expand(options.batch, -1)
    return torch.randint(SYMBOLS, (options.batch, options.length)), mask


def measure(
    encoder: Encoder, codes: dict[str, nn.Module], step: Callable[[], None], rounds: int
) -> dict[str, list[float]]:
    """Return the CPU seconds of a step with each encoding divided by those of the base, in each round.

    The base is measured before and after each encoding, because the speed of a machine varies by more than
    the encodings.
    """

    def seconds(name: str) -> float:
        encoder.trunk.positions = codes[name]
        start = time.process_time()
        step()
        return time.process_time() - start

    quotients: dict[str, list[float]] = {name: [] for name in codes if name != BASE}
    for name in codes:
        seconds(name)  # the first step allocates memory
    before = seconds(BASE)
    for _, (name, values) in itertools.product(range(rounds), quotients.items()):
        own, after = seconds(name), seconds(BASE)
        values.append(2 * own / (before + after))
        before = after
    return quotients


if __name__ == "__main__":
    main()
