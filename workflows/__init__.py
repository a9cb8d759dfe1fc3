"""The commands, recipes and reports: the only place that names both halves, `pipelines` and `train`."""

if __name__ != "tokenfree.workflows":
    raise ImportError(f"import this package as tokenfree.{__name__}, not as {__name__}: its classes would exist twice")
