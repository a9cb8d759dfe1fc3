"""What a command does around the workers of a run, for every kind of training."""
