"""The readers: what the inputs are cut into (`plan_splits`) and the pages of one such cut (`read_split`)."""

from preprocess.sources.records import Page, Split
from preprocess.sources.splits import hash_inputs, plan_splits, read_split

__all__ = ["Page", "Split", "hash_inputs", "plan_splits", "read_split"]
