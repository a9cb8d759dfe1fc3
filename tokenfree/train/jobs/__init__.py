"""What a command does around the workers of a run, whatever is trained."""
