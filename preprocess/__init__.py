"""Text to features: dumps and books in, sharded Arrow windows out. No Beam, no torch, no ray."""

if __name__ != "tokenfree.preprocess":
    raise ImportError(f"import this package as tokenfree.{__name__}, not as {__name__}: its classes would exist twice")
