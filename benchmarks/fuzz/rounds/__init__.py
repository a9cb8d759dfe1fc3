"""What a round does, a file for rounds of one sort."""
