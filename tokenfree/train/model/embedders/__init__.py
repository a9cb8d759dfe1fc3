"""Embedders: from characters (or other symbols) to vectors. One file per variant."""
