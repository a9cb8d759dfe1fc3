"""Downsamplers: from characters to fewer units, with the unit of each character. One file per variant."""
