"""The multi-scale Transformer compared with a standard one, in inference: python -m benchmarks.train.multi_scale_speed

Both classify batches of 128 texts, whose lengths are evenly distributed between half and one and a half times
their mean. Both have the width, depth and heads of the recipe ms-transformer-base, and their output combines
the class node with the maximum over all units. A batch is padded to its longest text. The
multiply-accumulates are for this length.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import in_turn, median, quotient
from tokenfree.core.settings import build
from tokenfree.preprocess.text.specials import CLS
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import ModelConfig

TRUNKS: dict[str, dict[str, Any]] = {
    "standard": {},
    "multi-scale": {"layer": "multi_scale", "attention": "multi_scale"},
}
CLASSES = 2


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    models = {name: make_model(fields, options) for name, fields in TRUNKS.items()}
    print("mean longest  standard  multi-scale    faster  allowed  of it")
    for mean in options.lengths:
        codepoints, mask = texts_of(mean, options.batch)
        length = codepoints.shape[1]
        products = {
            name: sum(cost.multiply_accumulates for cost in costs(model, length))
            for name, model in models.items()
        }
        runs = {name: make_run(model, codepoints, mask) for name, model in models.items()}
        seconds = in_turn(runs, options.rounds, warm_up=2)
        faster, allowed = (
            quotient(seconds, "standard", "multi-scale"),
            products["standard"] / products["multi-scale"],
        )
        standard, ours = (1e3 * median(seconds[name]) for name in TRUNKS)
        print(
            f"{mean:4} {length:7} {standard:6.0f} ms {ours:9.0f} ms {faster:8.2f}x {allowed:7.2f}x "
            f"{faster / allowed:6.0%}",
            flush=True,
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[22, 109, 201], help="mean lengths, in units"
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def make_model(trunk: dict[str, Any], options: argparse.Namespace) -> ModelConfig:
    mapping = {
        "width": options.width,
        "embedder": {
            "hashes": 10,
            "positions": "none" if "layer" in trunk else "learned",
            "max_characters": 512,
        },
        "downsampler": "identity",
        "trunk": {"layers": options.layers, "heads": options.heads, **trunk},
        "upsampler": "identity",
    }
    return build(ModelConfig, mapping, source="benchmark")


def texts_of(mean: int, batch: int) -> tuple[Tensor, Tensor]:
    """Return random codepoints [batch, longest] after CLS, and which of them are not padding."""
    length_B1 = torch.linspace(0.5 * mean, 1.5 * mean, batch).round().long()[:, None]
    mask = torch.arange(int(length_B1.max())) < length_B1
    codepoints = torch.randint(32, 0x3000, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    codepoints[:, 0] = CLS
    return codepoints, mask


def make_run(model: ModelConfig, codepoints: Tensor, mask: Tensor) -> Callable[[], Tensor]:
    """Return a function that classifies the batch."""
    torch.manual_seed(0)
    encoder = model.build().eval()
    classify = nn.Sequential(
        nn.Linear(2 * model.width, model.width), nn.ReLU(), nn.Linear(model.width, CLASSES)
    )

    @torch.inference_mode()
    def run() -> Tensor:
        _, units_BUD = encoder.encode(codepoints, mask)
        largest_BD = units_BUD.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        return classify(torch.cat([units_BUD[:, 0], largest_BD], dim=-1))

    return run


if __name__ == "__main__":
    main()
