"""The commands, recipes and reports: the only place that names both halves, `pipelines` and `train`."""

if __name__ != "tokenfree.workflows":  # a second copy of every module, whose classes are others
    raise ImportError(
        "`workflows` is a link for readers into tokenfree/. Import tokenfree.workflows instead."
    )
