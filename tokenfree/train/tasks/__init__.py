"""Downstream tasks, one per file: what a fine-tuned encoder predicts, and its scores."""
