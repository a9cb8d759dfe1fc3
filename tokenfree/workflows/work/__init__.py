"""What the commands do: `run` of the module that has a command's name. Imported when the command runs."""
