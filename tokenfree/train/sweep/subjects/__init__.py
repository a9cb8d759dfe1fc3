"""What a sweep trains and judges its trials by: windows of a data directory, or the examples of a task."""
