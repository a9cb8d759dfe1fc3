"""Text alone, by NumPy alone: characters, clean-up, words, sentences, windows, scripts, noise."""
