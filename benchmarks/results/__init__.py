"""Runs the experiments of docs/results.md and writes its tables; `python -m benchmarks.results --help`."""
