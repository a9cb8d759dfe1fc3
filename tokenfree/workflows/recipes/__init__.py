"""The recipes that come with tokenfree, in a folder for each family; how they are found and changed, and their keys."""
