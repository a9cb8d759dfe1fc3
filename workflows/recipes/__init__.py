"""The recipes that come with tokenfree, in a folder for each family, and how they are found, read and changed."""
