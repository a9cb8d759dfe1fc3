"""CANINE's training step compared with that of a subword BERT with the same trunk: python -m benchmarks.train.bert_step

Sizes are those of the recipes canine-s-base and bert-base: 2,048 characters and the 512 subwords that give
the same number of units, batch 1, a softmax over 32,000 subwords at 15% of 512 positions (77), fused AdamW,
one thread. The multiply-accumulates of both, including heads, give the expected ratio.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.timing import in_turn, median, quotient
from tokenfree.core.settings import build
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import ModelConfig

VOCABULARY = 32_000
UNITS, RATE = 512, 4
TARGETS = round(0.15 * UNITS)
SIZES = {"base": {"width": 768, "layers": 12, "heads": 12}, "small": {"width": 256, "layers": 4, "heads": 4}}


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    models = {"BERT": make_bert(options), "CANINE": make_canine(options)}
    lengths = {"BERT": UNITS, "CANINE": RATE * UNITS}
    products = {name: products_of(models[name], lengths[name]) for name in models}
    steps = {name: make_step(models[name], lengths[name], options.batch) for name in models}
    seconds = in_turn(steps, options.rounds, warm_up=2)
    for name, values in seconds.items():
        print(
            f"{name:8} {median(values):7.3f} CPU s a step, best {min(values):.3f}, {products[name] / 1e9:.1f} GMAC"
        )
    print(
        f"a step of CANINE takes {quotient(seconds, 'CANINE', 'BERT'):.2f} times that of BERT (best by best "
        f"{min(seconds['CANINE']) / min(seconds['BERT']):.2f}; multiply-accumulates "
        f"{products['CANINE'] / products['BERT']:.2f})"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


def make_canine(options: argparse.Namespace) -> ModelConfig:
    size = SIZES[options.size]
    trunk = {"layers": size["layers"], "heads": size["heads"], "dropout": options.dropout}
    return build(ModelConfig, {"width": size["width"], "trunk": trunk}, source="benchmark")


def make_bert(options: argparse.Namespace) -> ModelConfig:
    size = SIZES[options.size]
    mapping = {
        "width": size["width"],
        "embedder": {"name": "subword_table", "size": VOCABULARY + 3, "max_characters": UNITS},
        "downsampler": "identity",
        "trunk": {"layers": size["layers"], "heads": size["heads"], "dropout": options.dropout},
        "upsampler": "identity",
    }
    return build(ModelConfig, mapping, source="benchmark")


def products_of(model: ModelConfig, length: int) -> int:
    """Return the multiply-accumulates of a forward pass over one example, including the head."""
    encoder = sum(cost.multiply_accumulates for cost in costs(model, length, TARGETS))
    return encoder + TARGETS * model.width * VOCABULARY


def make_step(model: ModelConfig, length: int, batch: int) -> Callable[[], None]:
    """Return a training step on fixed random symbols: forward, backward, optimizer."""
    torch.manual_seed(0)
    encoder, head = model.build().train(), nn.Linear(model.width, VOCABULARY)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4, fused=True)
    symbols, mask = torch.randint(32, 0x3000, (batch, length)), torch.ones(batch, length, dtype=torch.bool)
    targets, gold = torch.randint(1, length, (batch, TARGETS)), torch.randint(VOCABULARY, (batch * TARGETS,))

    def step() -> None:
        optimizer.zero_grad()
        rows = encoder(symbols, mask, None, targets).characters
        F.cross_entropy(head(rows).flatten(0, 1), gold).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
