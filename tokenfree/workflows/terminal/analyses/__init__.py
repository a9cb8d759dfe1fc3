"""What analyses found, as tables for the terminal."""
