"""Models, objectives, data order, training loop, Ray Train and Ray Tune."""

if __name__ != "tokenfree.train":  # a second copy of every module, whose classes are others
    raise ImportError("`train` is a link for readers into tokenfree/. Import tokenfree.train instead.")
