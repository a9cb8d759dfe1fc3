"""Filters of documents, one topic a file."""
