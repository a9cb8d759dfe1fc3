"""Attention patterns of the trunk: which unit sees which. One variant, one file."""
