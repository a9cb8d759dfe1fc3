"""Models, objectives, data order, training loop, Ray Train and Ray Tune."""

if __name__ != "tokenfree.train":
    raise ImportError(f"import this package as tokenfree.{__name__}, not as {__name__}: its classes would exist twice")
