"""Dumps from a mirror of Wikimedia's."""
