"""What a sweep searches: its recipe, the knobs of the space, the targets."""
