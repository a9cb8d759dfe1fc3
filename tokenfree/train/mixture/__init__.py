"""Several data directories as one: how they are named, what they hold together, and whose turn it is."""
