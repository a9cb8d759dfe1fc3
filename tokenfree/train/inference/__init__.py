"""A trained encoder for any text."""
