"""Texts of tasks as models read them: as characters, words of bytes, or subwords."""
