"""Documents that are almost equal: sketches of texts, pairs of them, and which of two stays."""
