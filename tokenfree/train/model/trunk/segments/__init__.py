"""Segments in the trunk: biases on the attention logits by the segments of both units. One variant, one file."""
