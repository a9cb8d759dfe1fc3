"""CPU time of the filter `language`, next to reading and cleaning the same articles.

    python -m benchmarks.preprocess.language_filter DUMP ...

Prints a line for each dump, from its first 300 articles, with the reasons of the articles that are dropped.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections import Counter

from tokenfree.preprocess.config import FilterConfig, PreprocessConfig, steps_of
from tokenfree.preprocess.documents.extract import PageCounters, extract
from tokenfree.preprocess.records import Document
from tokenfree.preprocess.sources.splits import plan_splits, read_split

NUM_ARTICLES = 300


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dumps", nargs="+", metavar="DUMP")
    for dump in parser.parse_args().dumps:
        measure(dump)


def measure(dump: str) -> None:
    """Print the CPU time per article, the memory of this process, and what the filter drops."""
    config = PreprocessConfig(wikipedia=(dump,), filters=FilterConfig(also=({"name": "language"},)))
    (step,) = steps_of(config).filters
    start = time.process_time()
    pages = itertools.chain.from_iterable(map(read_split, plan_splits(config)))
    results = extract(pages, config.namespaces, config.filters, PageCounters())
    documents = [*itertools.islice((item for item in results if isinstance(item, Document)), NUM_ARTICLES)]
    cleaned = time.process_time()
    step.reason(documents[0])
    loaded = time.process_time()
    reasons = Counter(step.reason(document) for document in documents)
    identified = time.process_time()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{dump.rpartition('/')[2]}: {len(documents)} articles, read and cleaned in "
        f"{1000 * (cleaned - start) / len(documents):.1f} ms each, identified in "
        f"{1000 * (identified - loaded) / len(documents):.1f} ms each (first: {loaded - cleaned:.1f} s), "
        f"{megabytes:.0f} MB; dropped {sum(reasons.values()) - reasons[None]}: "
        f"{', '.join(f'{count} {reason}' for reason, count in reasons.items() if reason) or 'none'}"
    )


if __name__ == "__main__":
    main()
