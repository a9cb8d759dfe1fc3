"""What a model is trained for: one file per objective, its collator (NumPy) beside its head (Torch)."""
