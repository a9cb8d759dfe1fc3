"""The data side of training: the order of the samples, reading shards, and batches that no worker count changes."""
