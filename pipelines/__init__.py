"""Beam graphs that wire the functions of `preprocess`; nothing here knows about text."""

if __name__ != "tokenfree.pipelines":
    raise ImportError(f"import this package as tokenfree.{__name__}, not as {__name__}: its classes would exist twice")
