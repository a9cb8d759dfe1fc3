"""The model Y = UP(ENCODE(DOWN(embed(x)))): one folder for each slot of the frame, one file for each variant."""
