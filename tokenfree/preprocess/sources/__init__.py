"""Readers: they cut inputs into splits and yield the pages or books of a split."""
