"""Attention of the trunk: which units attend to which. One variant, one file."""
