"""Data of training: the order of samples, the shard reader, and batches that do not depend on the number of workers."""
