"""Examples of tasks, and readers of the files that contain them."""
