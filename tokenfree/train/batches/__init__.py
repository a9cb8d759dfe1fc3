"""Conversion of rows into batches: collators, framing, selection of targets and counter-based random numbers."""
