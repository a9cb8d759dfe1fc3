"""Beam graphs that wire the functions of `preprocess`; nothing here knows about text."""
