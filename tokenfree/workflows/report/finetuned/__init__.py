"""A fine-tuned run on the page: its scores as it learned, the labels that it confuses, and what it predicts."""
