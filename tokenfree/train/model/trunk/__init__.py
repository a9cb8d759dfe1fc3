"""ENCODE: the deep stack over the units, with its attention pattern, position code, segments and layer."""
