"""A finished data directory: its manifest, vocabulary, card, layout for Hugging Face, invariants, and `verify`."""
