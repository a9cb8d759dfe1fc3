"""What all readers of inputs share: files found by path, and the language that a name tells."""
