"""The model Y = UP(ENCODE(DOWN(embed(x)))): one package per part, one file per variant."""
