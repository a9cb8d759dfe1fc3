"""A small Wikipedia and a shelf of books, written from what any Python installation holds and from pages of our own."""

from workflows.demo_corpus.corpus import DemoCorpus, Progress, write_demo_corpus

__all__ = ["DemoCorpus", "Progress", "write_demo_corpus"]
