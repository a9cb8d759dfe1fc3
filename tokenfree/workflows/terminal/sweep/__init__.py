"""The live table of a sweep."""
