"""A small corpus for demos: a Wikipedia of our own pages, and books made of docstrings of the Python environment."""
