"""Upsamplers: units back to characters. One variant, one file."""
