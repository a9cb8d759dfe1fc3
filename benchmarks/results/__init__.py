"""Run the experiments of docs/results.md and write its tables; see `python -m benchmarks.results --help`."""
