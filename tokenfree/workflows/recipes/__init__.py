"""The recipes that come with tokenfree; how they are found and changed, and their keys."""
