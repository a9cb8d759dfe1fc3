"""Weights and folders of transformers, both ways."""
