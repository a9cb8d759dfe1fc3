"""Downsamplers: characters to fewer units, and the grouping: which character went where. One variant, one file."""
