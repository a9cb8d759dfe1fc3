"""Position encodings of the trunk. One file per variant."""
