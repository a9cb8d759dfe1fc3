"""Position codes of the trunk: biases on the attention logits of visible pairs. One variant, one file."""
