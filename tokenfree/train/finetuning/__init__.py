"""A run of fine-tuning: its files, the order of its examples, its evaluation, and what a finished one predicts."""
