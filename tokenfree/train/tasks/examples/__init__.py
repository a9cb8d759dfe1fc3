"""The examples of tasks, and the readers of the files that hold them."""
