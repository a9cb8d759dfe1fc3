"""The benchmark of GPUs: how it runs its parts, and all parts at tiny sizes on a CPU."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import estimate, speed
from benchmarks.gpu.parts import NEEDS_CUDA, Part, Runner

PROGRAM = """
import time
from benchmarks.gpu.parts import run_child

def measure(child):
    if child.options.get("fails"):
        raise ValueError("a part that fails")
    with child.alone():
        began = time.monotonic()
        time.sleep(child.options["seconds"])
        return {"line": "done", "began": began, "ended": time.monotonic()}

assert run_child(measure)
"""


def test_parts_measure_alone_and_a_bad_part_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some_program.py").write_text(PROGRAM)
    root = Path(speed.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    runner = Runner("some_program", tmp_path / "out", until=time.monotonic() + 60, gigabytes=20)
    runner.run(
        [
            Part("one", {"seconds": 0.3}, 5),
            Part("bad", {"fails": True}, 5),
            Part("other", {"seconds": 0.3}, 5),
            Part("slow", {"seconds": 60}, 5, seconds=6),
        ]
    )
    spans = sorted(
        (runner.results[name]["began"], runner.results[name]["ended"]) for name in ("one", "other")
    )
    assert spans[0][1] <= spans[1][0]
    assert "ValueError: a part that fails" in runner.results["bad"]["output"]
    assert runner.results["slow"]["failed"] == "slower than its limit"
    runner = Runner("some_program", tmp_path / "out", until=time.monotonic() + 5, gigabytes=20)
    runner.run([Part("late", {"seconds": 0})])
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert lines[-1]["skipped"] == "no time left"
    assert "done" in capsys.readouterr().out


def test_without_a_device_it_says_so() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu.speed"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "no CUDA device here; --check runs on a CPU" in ended.stderr


def test_the_estimate_counts_the_operations_of_the_meter() -> None:
    """The formulas of kernels and those of `tokenfree model` agree, except where code is cheaper than its formula."""
    setup = speed.Setup(speed.CANINE)
    recipe = setup.recipe(32)
    kernels = estimate.kernels(recipe.model, 2048, 80, 32)
    operations = sum(kernel.operations for kernel in kernels)
    with torch.device("meta"):  # only sizes are needed
        encoder = recipe.model.build()
    forward = sum(cost.multiply_accumulates for cost in encoder.costs(2048, 80)) + 80 * 768 * (768 + 120_000)
    assert operations == pytest.approx(32 * 6 * forward, rel=0.1)


@pytest.mark.slow
def test_all_parts_run_at_tiny_sizes(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu.speed", "--check", "--seconds", "1200"]
    ended = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    results = {line.pop("part"): line for line in lines}
    assert ended.returncode == 0, ended.stdout
    assert {*results} == {part.name for part in speed.parts(check=True)}
    for name, result in results.items():
        if result["line"] != NEEDS_CUDA:
            assert speed.difference(result, reference(results, name)) < 1e-4, name


def reference(results: dict[str, speed.Result], name: str) -> speed.Result:
    """Return the result of the same model without variants; a peer or another optimizer is its own reference."""
    setup = results[name]["setup"]
    eager = {speed.CANINE: "canine", speed.FAST: "fast"}
    return results[name if setup["optimizer"] else eager.get(setup["model"], name)]
