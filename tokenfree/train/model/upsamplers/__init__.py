"""Upsamplers: from units back to characters. One file per variant."""
