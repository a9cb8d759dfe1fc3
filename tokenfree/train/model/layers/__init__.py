"""Layers of the trunk. One variant, one file."""
