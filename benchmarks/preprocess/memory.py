"""Memory of preprocessing for dumps that cannot be split before they are read: one stream of each format.

    python -m benchmarks.preprocess.memory                              # 60 and 180 MB of XML in each format
    python -m benchmarks.preprocess.memory --sizes 200MB 600MB 2GB --formats gz zst
    python -m benchmarks.preprocess.memory --model SUBWORDS.model       # without training a vocabulary
    python -m benchmarks.preprocess.memory --sizes 20GB --one-article-in 20 --formats xz  # few articles
    python -m benchmarks.preprocess.memory --only hostile               # 3 million `<page>` in 20 kB of gz

The dumps repeat the pages of a real one with new ids. Each job is a separate process with one worker. "peak
MB" is the peak resident memory of the largest process, "file MB" the size of the dump, and "MB a GB" the
growth from the previous size. Small jobs do not fill what larger ones hold at once (a run of 32 MiB, 16
million characters of a merge). Therefore only measurements beyond 100 MB can be extrapolated to dumps of many
GB.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.preprocess.whole_job import find_dump, run
from tools.repeated_dump import open_stream, parse_size, write_single_stream

FORMATS = ("xml", "gz", "bz2", "xz", "zst")
SIZES = tuple(map(parse_size, ("60MB", "180MB")))
HOSTILE_TAGS = 3_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "dump", nargs="?", help="a Wikipedia dump (default: the English excerpt of the test data)"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=parse_size, default=SIZES, metavar="SIZE", help="of the XML"
    )
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument(
        "--one-article-in", type=int, default=1, metavar="N", help="the others are talk pages"
    )
    parser.add_argument("--only", choices=("dumps", "hostile"), help="a part of the benchmark")
    parser.add_argument("--vocabulary", type=int, default=16_000, help="number of subwords")
    parser.add_argument("--model", help="a SentencePiece model, instead of one trained on each dump")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as name:
        folder = Path(name)
        if options.only != "hostile":
            measure_dumps(options, folder)
        if options.only != "dumps":
            measure_hostile(options, folder)


def measure_dumps(options: argparse.Namespace, folder: Path) -> None:
    """Print the table of formats and sizes."""
    source = Path(options.dump) if options.dump else find_dump(folder)
    print(f"{'format':8}{'XML MB':>9}{'file MB':>9}{'CPU s':>9}{'peak MB':>9}{'MB a GB':>9}", flush=True)
    for form in options.formats:
        before: tuple[int, int] | None = None
        for size in sorted(options.sizes):
            dump = folder / (f"{source.name.split('.')[0]}.xml" + (f".{form}" if form != "xml" else ""))
            write_single_stream(source, size, dump, options.one_article_in)
            result = run("ours:1", dump, options.model, folder, options.vocabulary)
            growth = f"{1000 * (result.peak - before[1]) / (size - before[0]):,.0f}" if before else ""
            before = size, result.peak
            told = f"{dump.stat().st_size / 1e6:9,.1f}{result.seconds:9.1f}{result.peak / 1e6:9,.0f}"
            dump.unlink()
            print(f"{form:8}{size / 1e6:9,.0f}{told}{growth:>9}", flush=True)


def measure_hostile(options: argparse.Namespace, folder: Path) -> None:
    """Print the peak memory for one article followed by tags of pages that never end, each of which is a failure."""
    dump = folder / "hostile.xml.gz"
    text = " ".join(f"word{number}" for number in range(2000))
    with open_stream(dump) as file:
        file.write(b"<mediawiki>\n<page><title>A</title><ns>0</ns><id>1</id><revision><id>2</id>")
        file.write(f"<text>{text}</text></revision></page>\n".encode())
        file.write(b"<page>" * HOSTILE_TAGS)
    size = dump.stat().st_size
    result = run("ours:1", dump, None, folder, 400)
    print(
        f"{HOSTILE_TAGS:,} tags <page> in {size / 1e3:,.0f} kB of gz: peak {result.peak / 1e6:,.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
