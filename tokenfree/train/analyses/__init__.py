"""What a trained model has learned: its score on each held-out target, and how much of that comes from the context."""
