"""The vectors of a whole corpus as Arrow shards: texts read, encoded in parts, committed, taken up again."""
