"""The parts of the benchmark for GPUs at tiny sizes, on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import speed
from benchmarks.gpu.parts import NEEDS_CUDA, Child
from benchmarks.gpu.variants import ON_CUDA

SAME = [part for part in speed.parts(check=True) if not (ON_CUDA & {*part.options["changes"]})]


@pytest.mark.slow
def test_all_parts_run_at_tiny_sizes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.speed", "--check", "--seconds", "1200"]
    ended = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    results = {line.pop("part"): line for line in lines}
    assert ended.returncode == 0, ended.stdout
    assert {*results} >= {part.name for part in speed.parts(check=True)}
    for name, result in results.items():
        assert result["line"] == NEEDS_CUDA or speed.difference(result, reference(results, name)) < 1e-4


def reference(results: speed.Results, name: str) -> speed.Result:
    """Return the result of the same model without variants; a peer is its own reference."""
    model = results[name]["setup"]["model"]
    eager = {speed.CANINE: "canine", speed.FAST: "fast"}
    return results[eager.get(model, name)]
