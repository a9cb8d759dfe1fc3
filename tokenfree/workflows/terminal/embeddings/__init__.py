"""What is printed of the vectors of a corpus."""
