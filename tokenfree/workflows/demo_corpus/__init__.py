"""A small Wikipedia and a shelf of books, written from what any Python holds and from pages of our own."""
