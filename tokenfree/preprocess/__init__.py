"""Text to features: dumps and books in, sharded Arrow windows out. No Beam, no torch, no ray."""

if __name__ != "tokenfree.preprocess":  # a second copy of every module, whose classes are others
    raise ImportError(
        "`preprocess` is a link for readers into tokenfree/. Import tokenfree.preprocess instead."
    )
