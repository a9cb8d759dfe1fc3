"""A training step on a busy machine: what waiting threads do, and how many there are.

Starts one busy process for each CPU, then trains the same steps in fresh processes, with threads that spin while they
wait (OMP_WAIT_POLICY=active), as OpenMP has them (unset), and that sleep (passive, what `tokenfree` sets).

Example:
  python -m benchmarks.train.threads --steps 30
"""

import argparse
import os
import statistics
import subprocess
import sys

PROGRAM = """
import sys, time, torch
threads, steps = map(int, sys.argv[1:])
torch.set_num_threads(threads)
from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.workflows.recipes.library import read
model = build(ModelConfig, read("canine-s-tiny")["model"], source="canine-s-tiny").build()
codepoints = torch.randint(32, 128, (8, 128))
for step in range(steps + 3):
    if step == 3:
        began = time.perf_counter()
    out = model(codepoints, torch.ones_like(codepoints).bool())
    (out.characters.sum() + out.pooled.sum()).backward()
print((time.perf_counter() - began) / steps)
"""
POLICIES = ("active", None, "passive")


def seconds_per_step(policy: str | None, threads: int, steps: int) -> float:
    """Of forward and backward of the tiny CANINE, eight examples of 128 characters, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, "-c", PROGRAM, str(threads), str(steps)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print milliseconds a step, the median of the rounds, which take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=len(os.sched_getaffinity(0)), help="busy processes beside it")
    arguments = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    settings = [(policy, threads) for threads in (1, len(os.sched_getaffinity(0))) for policy in POLICIES]
    found: dict[tuple[str | None, int], list[float]] = {setting: [] for setting in settings}
    print(f"{'threads':<10}{'OMP_WAIT_POLICY':<18}ms a step, with {arguments.busy} busy processes")
    try:
        for number in range(arguments.rounds):
            for policy, threads in settings:
                seconds = found[policy, threads]
                seconds.append(seconds_per_step(policy, threads, arguments.steps))
                if number == arguments.rounds - 1:
                    print(f"{threads:<10}{policy or 'unset':<18}{1000 * statistics.median(seconds):.1f}", flush=True)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
