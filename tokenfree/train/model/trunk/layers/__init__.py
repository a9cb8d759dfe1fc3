"""Layers of the trunk around an attention pattern. One variant, one file."""
