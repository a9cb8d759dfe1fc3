"""Position encodings of the trunk. One variant, one file."""
