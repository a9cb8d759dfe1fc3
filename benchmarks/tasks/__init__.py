"""Fine-tunes what docs/task_results.md reports; `python -m benchmarks.tasks --help`."""
