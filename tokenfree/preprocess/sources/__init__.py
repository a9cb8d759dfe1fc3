"""The readers: inputs cut into splits, and the pages or books of one split."""
