"""What all readers of inputs share: files found by path and decompressed, and the language that a name tells."""
