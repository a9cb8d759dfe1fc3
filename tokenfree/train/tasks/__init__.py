"""Downstream tasks, one a file: what a fine-tuned encoder answers, and how well."""
