"""Embedders: characters (or other symbols) to vectors. One variant, one file."""
