"""Make small mistakes in the equations, one at a time, and report which ones no test notices: `make mutate`.

    python -m tools.mutation --sample 500 --seed 0

Results are appended to a file, one line each, so that a stopped command resumes. A mutant is killed if a test
fails or does not end in time. Survivors are listed. `--again` tries them again with the current tests.
`equivalent.tsv` explains why no test can distinguish some survivors from the original code. These are counted
separately, but still as survivors.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import REPOSITORY
from tools.mutation import trial
from tools.mutation.covering import tests_of
from tools.mutation.mutants import Mutant, draw

SOURCE = REPOSITORY / "tokenfree"
EQUIVALENT = Path(__file__).with_name("equivalent.tsv")
LIMIT = 900  # seconds per mutant; ten times what all its tests take on an idle machine


def main() -> None:
    """Parse the command line, try the mutants without a result, and print the share that was killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=500, help="how many mutants, drawn at random (500)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument(
        "--results", type=Path, default=REPOSITORY / "build" / "mutation.jsonl", help="file of results"
    )
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    options = parser.parse_args()
    sample = [
        mutant for mutant in draw(SOURCE, options.seed)[: options.sample] if options.only in mutant.file
    ]
    known = _read(options.results)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    trial.warm_up()
    for number, mutant in enumerate(sample):
        source = mutant.source(SOURCE)
        key = _key(mutant, source)
        if key in known and (known[key]["killed"] or not options.again or _reason(mutant)):
            continue
        outcome = trial.attempt(_module(mutant), SOURCE / mutant.file, source, tests_of(mutant.file), LIMIT)
        known[key] = {"key": key, "killed": outcome.is_killed, **outcome._asdict()}
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(known[key]) + "\n")
        print(
            f"{number + 1}/{len(sample)} {mutant.name}: {outcome.verdict} {outcome.by} ({outcome.seconds} s)",
            flush=True,
        )
    _report(sample, [known[_key(mutant, mutant.source(SOURCE))] for mutant in sample])


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95% confidence interval of a share, given `hits` in `trials` (Wilson 1927)."""
    share, spread = hits / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / trials + spread / trials / 4) / (1 + spread)
    return middle - half, middle + half


def _report(sample: Sequence[Mutant], results: Sequence[dict[str, Any]]) -> None:
    survivors = [mutant for mutant, result in zip(sample, results, strict=True) if not result["killed"]]
    for mutant in survivors:
        print(f"\n{mutant.name}", *mutant.diff(SOURCE), _reason(mutant) or "not explained", sep="\n    ")
    killed, explained = len(sample) - len(survivors), sum(bool(_reason(mutant)) for mutant in survivors)
    low, high = wilson(killed, len(sample))
    print(
        f"\n{killed} of {len(sample)} mutants were killed: {killed / len(sample):.1%} ({low:.1%} to {high:.1%}, 95%)"
    )
    print(
        f"of the {len(survivors)} others, {explained} are explained in {EQUIVALENT.relative_to(REPOSITORY)}"
    )


def _reason(mutant: Mutant) -> str:
    """Return why no test can distinguish this mutant from the original code, or an empty string if nothing is known."""
    return _reasons().get((mutant.file, *mutant.diff(SOURCE)), "")


@functools.cache
def _reasons() -> dict[tuple[str, ...], str]:
    """Return the reasons by file and changed lines. The first line of the file is a header."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()[1:]
    columns = (line.split("\t") for line in lines)
    return {(file, f"- {before}", f"+ {after}"): why for file, before, after, why in columns}


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last result of each mutant by key."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {result["key"]: result for result in map(json.loads, lines)}


def _key(mutant: Mutant, source: str) -> str:
    """Return a key of the mutant's name and text. A result does not apply to other versions of the file."""
    return f"{mutant.name} {hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _module(mutant: Mutant) -> str:
    return f"tokenfree/{mutant.file}".removesuffix(".py").replace("/", ".")


if __name__ == "__main__":
    main()
