"""What is analysed: a trained encoder, and the texts that it reads."""
