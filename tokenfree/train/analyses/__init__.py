"""Analyses of what a trained model has learned, such as its scores on held-out targets with and without context."""
