"""CPU time of a kept record of a few words: names of sensors, as JSON lines, in a whole job on one worker.

    python -m benchmarks.preprocess.short_records [--records 200000] [--rounds 3]

The time of a job of 1,000 records is subtracted. Each job runs in a separate process; the best of the rounds counts.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        model = job(Path(folder), "first", FEW, []) / "vocabulary" / "subwords.model"
        seconds: dict[int, list[float]] = {FEW: [], options.records: []}
        for number in range(options.rounds):
            for records, values in seconds.items():
                start = used()
                job(Path(folder), f"{records}-{number}", records, ["--vocabulary.model", str(model)])
                values.append(used() - start)
        few, many = (min(values) for values in seconds.values())
    print(f"{many:.2f} s for {options.records:,} records, {few:.2f} s for {FEW:,}")
    print(f"{1000 * (many - few) / (options.records - FEW):.4f} ms a record")


def job(folder: Path, name: str, records: int, arguments: list[str]) -> Path:
    """Run a job and return its directory."""
    draw = random.Random(0)
    kinds, places = ("sensor", "pump", "valve", "gauge"), ("north", "south", "inlet", "outlet")
    lines = (f"{draw.choice(kinds)} {number} {draw.choice(places)}" for number in range(records))
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    command = [sys.executable, "-m", "tokenfree", "preprocess", "--books", str(path), "--workers", "1"]
    command += ["--filters.min_characters", "1", "--vocabulary.size", "1000", "--output", str(folder / name)]
    subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / name


def used() -> float:
    """Return the CPU seconds of the processes that have ended."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


if __name__ == "__main__":
    main()
