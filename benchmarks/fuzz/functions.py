"""Random and broken input for the reader, the cleaner, the word splitter and the aligner, for as long as one likes.

    python -m benchmarks.fuzz.functions --target cleaner --seconds 60
    python -m benchmarks.fuzz.functions --target reader --seconds 60 --seeds some-dump.xml.bz2
    python -m benchmarks.fuzz.functions --target reader --replay findings/reader-0.bin

Seeds are pages of the demo corpus, or of the dumps given. With atheris installed (pip install atheris) the coverage of
`preprocess` guides the search, and it stops at the first finding; else, or with --plain, mutation is blind, and one
input is kept for each place that raises. Findings are made small and written to --output; with any, the exit status
is 1.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import importlib
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fuzz.targets import TARGETS, Target

MAX_BYTES = 200_000
MAX_REPEATS = 3000
SECONDS_TO_SHRINK = 20
_PAGE = re.compile(rb"<page>.*?</page>\n?", re.DOTALL)


def main() -> None:
    options = parse()
    atheris = None if options.plain or options.replay else import_atheris()
    if atheris is not None:
        with atheris.instrument_imports(include=["tokenfree.preprocess"]):
            target = TARGETS[options.target](seed_pages(options.seeds))
    else:
        target = TARGETS[options.target](seed_pages(options.seeds))
    if options.replay:
        target.check(options.replay.read_bytes())
        print("nothing is wrong with it")
        return
    seeds = [seed[:MAX_BYTES] for seed in target.seeds(seed_pages(options.seeds))]
    options.output.mkdir(parents=True, exist_ok=True)
    print(f"{options.target}: {len(seeds)} seeds, {'atheris' if atheris else 'blind mutation'}", flush=True)
    if atheris is not None:
        guided(atheris, target, seeds, options)
    found = blind(target, seeds, options)
    sys.exit(1 if found else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], metavar="DUMP", help="instead of the demo corpus")
    parser.add_argument("--output", type=Path, default=Path("findings"), help="folder for findings (default: findings)")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check one input, with its traceback")
    return parser.parse_args()


def import_atheris() -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module("atheris")
    except ImportError:
        return None


def seed_pages(dumps: Sequence[Path]) -> list[bytes]:
    """Pages of XML, at most 200, the smaller ones first."""
    with tempfile.TemporaryDirectory() as folder:
        if not dumps:
            from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus

            dumps = write_demo_corpus(Path(folder)).wikipedia
        xml = b""
        for dump in dumps:
            raw = dump.read_bytes()
            xml += bz2.decompress(raw) if raw.startswith(b"BZh") else raw
    pages = sorted(_PAGE.findall(xml), key=lambda page: (len(page), page))
    return pages[:: max(1, len(pages) // 200)]


def mutate(data: bytes, seeds: Sequence[bytes], tokens: Sequence[bytes], choose: random.Random) -> bytes:
    """One to six changes: tokens put in (once or thousands of times), pieces dropped, doubled, moved, bits turned."""
    mutant = bytearray(data)
    for _ in range(choose.randint(1, 6)):
        start = choose.randint(0, len(mutant))
        end = min(len(mutant), start + int(choose.paretovariate(0.6)))
        kind = choose.randrange(8)
        if kind <= 1:
            mutant[start:start] = choose.choice(tokens)
        elif kind == 2:
            mutant[start:start] = b"".join(choose.choices(tokens, k=choose.randint(1, 3))) * choose.randint(
                1, MAX_REPEATS
            )
        elif kind == 3:
            del mutant[start:end]
        elif kind == 4:
            mutant[start:start] = mutant[start:end] * choose.randint(1, 20)
        elif kind == 5 and mutant:
            mutant[start % len(mutant)] = choose.randrange(256)
        elif kind == 6:
            other = choose.choice(seeds)
            cut = choose.randint(0, len(other))
            mutant[start:end] = other[cut : cut + int(choose.paretovariate(0.4))]
        else:
            del mutant[start if choose.random() < 0.1 else len(mutant) :]
        del mutant[MAX_BYTES:]
    return bytes(mutant)


def guided(atheris: Any, target: Target, seeds: Sequence[bytes], options: argparse.Namespace) -> None:
    """Let libFuzzer choose, with our mutations and its own; it ends the process."""
    choose = random.Random(options.seed)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        choose.seed(seed)
        if choose.random() < 0.5:
            return atheris.Mutate(data, max_size)
        return mutate(data, seeds, target.tokens, choose)[:max_size]

    with tempfile.TemporaryDirectory(prefix="tokenfree-fuzz-") as folder:
        for seed in seeds:
            (Path(folder) / hashlib.sha256(seed).hexdigest()).write_bytes(seed)
        arguments = [f"-max_total_time={options.seconds}", f"-max_len={MAX_BYTES}", f"-seed={options.seed + 1}"]
        arguments += ["-timeout=60", "-rss_limit_mb=0", "-print_final_stats=1"]
        arguments += [f"-artifact_prefix={options.output}/{options.target}-", folder]
        atheris.Setup([sys.argv[0], *arguments], target.check, custom_mutator=mutator)
        atheris.Fuzz()


def blind(target: Target, seeds: Sequence[bytes], options: argparse.Namespace) -> int:
    """Mutate seeds until the time is over; the number of findings."""
    choose = random.Random(options.seed)
    findings: dict[str, Path] = {}
    tried, stop = 0, time.monotonic() + options.seconds
    while time.monotonic() < stop:
        data = mutate(choose.choice(seeds), seeds, target.tokens, choose)
        tried += 1
        place = failure(target.check, data)
        if place is None or place in findings:
            continue
        small = shrink(target.check, data, place)
        findings[place] = options.output / f"{options.target}-{len(findings)}.bin"
        findings[place].write_bytes(small)
        print(f"{place}\n  {findings[place]}: {small[:200]!r}{' ...' if len(small) > 200 else ''}", flush=True)
    print(f"{options.target}: {tried} inputs, {len(findings)} findings", flush=True)
    return len(findings)


def failure(check: Callable[[bytes], object], data: bytes) -> str | None:
    """What `check` raises and where, or None."""
    try:
        check(data)
    except Exception as error:  # whatever it is, it is a finding
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = "" if isinstance(error, UnicodeError) else re.sub(r"[\d.]+|'.*", "_", str(error))[:60]
        return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno} {frame.name}: {message}"
    return None


def shrink(check: Callable[[bytes], object], data: bytes, place: str) -> bytes:
    """A smaller input that fails at the same place: pieces are dropped, of half the input down to one byte."""
    stop = time.monotonic() + SECONDS_TO_SHRINK
    size = len(data) // 2
    while size and time.monotonic() < stop:
        start = 0
        while start < len(data) and time.monotonic() < stop:
            shorter = data[:start] + data[start + size :]
            if failure(check, shorter) == place:
                data = shorter
            else:
                start += size
        size //= 2
    return data


if __name__ == "__main__":
    main()
