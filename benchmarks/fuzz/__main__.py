"""Damages files, kills processes, fills disks and loses requests, for as long as one likes: `make fuzz`.

    python -m benchmarks.fuzz --minutes 10 --seed 1
    python -m benchmarks.fuzz --kind kill-pretrain --rounds 20 --seed 2
    python -m benchmarks.fuzz --kind run --repeat 100017

Every round runs whole commands and checks the bytes, the losses, what they say, and that no process is left behind. It
has a number from which all its random choices come: a finding is printed with the command that repeats it, and the
folder of the round is kept. A line a round is appended to --records, of which `python -m benchmarks.fuzz.table` makes
the figures of docs/tested.md. With a finding the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from pathlib import Path

from benchmarks.fuzz import commands, sitting
from benchmarks.fuzz.originals import Originals


def main() -> None:
    """Play rounds until the time is over, or as many as asked."""
    options = _parse()
    kinds = tuple(options.kind or sitting.possible_kinds())
    work = options.work.resolve()
    if options.repeat is not None:
        numbers, stop = iter([options.repeat]), float("inf")
    else:
        last = options.start + options.rounds if options.rounds else sitting.ROUNDS_OF_A_SEED
        numbers = (sitting.number_of(options.seed, place) for place in range(options.start, last))
        stop = float("inf") if options.rounds else time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: commands under way end with this process
    print("making what rounds begin with", flush=True)
    commands.warm_up()
    originals, code = Originals(work), sitting.commit()
    found = played = 0
    with contextlib.suppress(KeyboardInterrupt):
        for number in numbers:
            if time.monotonic() > stop:
                break
            kind = sitting.kind_of(number, kinds)
            record, story = sitting.play(number, kind, work, originals, code)
            if options.repeat is None:
                sitting.append(options.records, record)
            played += 1
            print(
                f"{number} {kind:<24}{record.seconds:7.1f} s  {'passed' if record.has_passed else 'FOUND'}", flush=True
            )
            if not record.has_passed or options.repeat is not None:
                print(*(f"    {line}" for line in story), sep="\n")
            if not record.has_passed:
                found += 1
                print(f"  {record.outcome}\n  again: {sitting.repeat(record)}", flush=True)
    print(f"{played} rounds, {found} findings", flush=True)
    sys.exit(1 if found else 0)


def _parse() -> argparse.Namespace:
    build = commands.ROOT / "build" / "fuzz"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--rounds", type=int, help="how many, in place of minutes")
    parser.add_argument("--seed", type=int, default=1, help="of the sitting (1)")
    parser.add_argument("--start", type=int, default=0, help="the place of the first round in the sitting (0)")
    parser.add_argument("--kind", action="append", choices=sitting.KINDS, help="only this one; may be given again")
    parser.add_argument("--repeat", type=int, metavar="ROUND", help="this one alone, by its number")
    parser.add_argument("--work", type=Path, default=build, help=f"folder to work in ({build})")
    parser.add_argument("--records", type=Path, default=build / "rounds.jsonl", help="a line a round is appended")
    return parser.parse_args()


if __name__ == "__main__":
    main()
