"""What the commands do: `run` of the module that has a command's name, imported when the command runs.

It returns the exit status, or nothing if the command always succeeds or raises an error.
"""
