"""The recipes of tokenfree: how they are found and changed, and the keys that they may have."""
