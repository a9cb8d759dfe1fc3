"""Attention patterns of the trunk: which units attend to which. One file per variant."""
