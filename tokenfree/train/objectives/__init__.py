"""Training objectives, one per file: settings, a collator (NumPy) and a head (PyTorch)."""
