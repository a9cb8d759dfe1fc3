"""Searchers: which settings are tried, in which order. A variant is one file with a `Config` that is a `Searcher`."""
