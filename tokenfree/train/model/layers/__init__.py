"""Layers of the trunk. One file per variant."""
