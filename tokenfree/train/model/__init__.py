"""The model Y = UP(ENCODE(DOWN(embed(x)))): a folder for each part, a file for each variant.

Letters at the end of a tensor's name are its dimensions. Files explain only those that are not here: B batch,
C characters (or bytes, or subwords), U units after DOWN, P targets, Q queries, K keys, H heads, L layers, O
offsets, D width, E width of a head.
"""
