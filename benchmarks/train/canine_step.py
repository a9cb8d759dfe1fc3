"""CANINE's training step compared with transformers.CanineModel: python -m benchmarks.train.canine_step --size small

Both have the same weights, text, head (subword loss over 32,000 pieces at 15% of subwords, at most 80 a row)
and AdamW. AdamW is fused. --bfloat16 runs both under autocast. The model of transformers has no targeted
upsampling: it computes all characters and gathers. One thread, unless --threads gives more. Peak memory is
that of one process per model (--only). Times are of steps in turn, in one process.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import in_turn, median, quotient
from tokenfree.train.huggingface.canine import from_huggingface

SIZES: dict[str, dict[str, Any]] = {
    "base": {"fields": {}, "length": 2048, "batch": 1},
    "small": {
        "fields": {
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        "length": 1024,
        "batch": 4,
    },
}
VOCABULARY = 32_000
CHARACTERS_PER_SUBWORD = 4
REAL = 0.9  # of the characters of a row; the rest is padding, so that masks matter


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    names = [options.only] if options.only else ["huggingface", "tokenfree"]
    memory = {} if options.only else {name: peak_memory(name, options) for name in names}
    steps = {name: make_step(name, options) for name in names}
    seconds = in_turn(steps, options.steps)
    if options.only:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    for name in names:
        print(f"{name:12} {median(seconds[name]):7.3f} CPU s a step, peak {memory[name] / 2**30:5.2f} GiB")
    print(
        f"ours is {quotient(seconds, 'huggingface', 'tokenfree'):.2f} times as fast (median of the rounds), with "
        f"{memory['tokenfree'] / memory['huggingface']:.2f} of the memory"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch", type=int, help="rows of a step (default: of the size)")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--bfloat16", action="store_true", help="matrix products in bfloat16")
    parser.add_argument(
        "--only", choices=["huggingface", "tokenfree"], help="one model: print its peak memory in bytes"
    )
    return parser.parse_args()


def peak_memory(name: str, options: argparse.Namespace) -> int:
    """Return the peak resident bytes of a process that runs one step of one model.

    Call it while this process is small, because the child's peak starts at the size of its parent.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.train.canine_step",
        *sys.argv[1:],
        "--only",
        name,
        "--steps",
        "1",
    ]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def make_step(name: str, options: argparse.Namespace) -> Callable[[], float]:
    """Return a function that runs one training step and returns its loss."""
    from transformers import CanineConfig, CanineModel

    size = SIZES[options.size]
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": options.dropout, "attention_probs_dropout_prob": options.dropout}
    model: Any = CanineModel(CanineConfig(**size["fields"], **dropout))
    if name != "huggingface":
        model, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    torch.manual_seed(1)
    head = nn.Linear(size["fields"].get("hidden_size", 768), VOCABULARY)
    model.train()
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4, fused=True)
    codepoints, mask, targets, subwords = make_batch(options.batch or size["batch"], size["length"])

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            if name == "huggingface":
                rows = model(codepoints, attention_mask=mask.long()).last_hidden_state
                rows = rows.gather(1, targets[..., None].expand(-1, -1, rows.shape[-1]))
            else:
                rows = model(codepoints, mask, None, targets).characters
            logits = head(rows)
        loss = F.cross_entropy(logits.float().flatten(0, 1), subwords.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def make_batch(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(length) < REAL * length).expand(batch, -1)
    codepoints = torch.randint(32, 0x3000, (batch, length), generator=generator) * mask
    codepoints[:, 0] = 0xE000
    num_targets = min(80, round(0.15 * length / CHARACTERS_PER_SUBWORD))
    targets = torch.randint(1, round(REAL * length), (batch, num_targets), generator=generator)
    return codepoints, mask, targets, torch.randint(VOCABULARY, targets.shape, generator=generator)


if __name__ == "__main__":
    main()
