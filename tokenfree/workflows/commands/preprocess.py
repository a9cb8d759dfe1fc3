"""Turn Wikipedia dumps and books into sharded Arrow windows.

Reads dumps (.xml, .bz2, .gz, .xz, .zst; multistream in parallel) and books (.txt and .jsonl, compressed or
not, and .parquet), cleans them, trains a subword vocabulary (or uses --vocabulary.model), and writes shards
that `datasets.load_from_disk` opens. Run the same command again to resume a job that was killed. Paths are
files, folders (including their links), globs or fsspec URLs (s3://, gs://, memory://).

Examples:
  tokenfree preprocess --wikipedia enwiki-latest-pages-articles-multistream.xml.bz2 --output data/en
  tokenfree preprocess --wikipedia dumps/*.bz2 --books books/ --output data/many --vocabulary.size 64000
  tokenfree preprocess --books corpus/*.jsonl --text_column body --language_column lang --output data/own
  tokenfree preprocess --hf-dataset saved/ wikimedia/wikipedia:20231101.sw --output data/sw
  tokenfree preprocess --wikipedia gs://dumps/*.bz2 --output gs://data/en --runner dataflow -- --project=ours
  tokenfree preprocess --wikipedia dumps/*.bz2 --output /mnt/data/en --profile our-flink.yaml --workers 16
  tokenfree cluster submit -- preprocess --wikipedia s3://dumps/*.bz2 --output s3://data/en --runner ray
"""

import argparse

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PREPROCESSING as KIND

PASSES_ON = True  # options after `--` go to Beam


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True)
    parser.add_argument(
        "--wikipedia", metavar="PATH", nargs="+", action="extend", help="dump files, globs or URLs"
    )
    parser.add_argument(
        "--books",
        metavar="PATH",
        nargs="+",
        action="extend",
        help="files or folders of text, JSON lines (both also .gz, .bz2, .xz, .zst) or Parquet",
    )
    parser.add_argument(
        "--hf-dataset",
        metavar="NAME",
        nargs="+",
        action="extend",
        help="Hugging Face datasets: NAME[:CONFIG][@SPLIT]",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="data directory to write")
    engine = parser.add_mutually_exclusive_group()
    runners = ("direct", "ray", "beam", "flink", "spark", "dataflow", "prism")
    engine.add_argument(
        "--runner",
        metavar="RUNNER",
        choices=runners,
        default="direct",
        help=f"where to run: {', '.join(runners)} (default: direct, this machine)",
    )
    engine.add_argument(
        "--profile",
        metavar="FILE",
        help="file with options of a runner, as in pipelines/beam_profiles/*.yaml",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="number of processes (default 1), or of tasks at a time on a cluster; 0: one per CPU",
    )
    parser.add_argument(
        "--check-inputs", action="store_true", help="hash all inputs of a complete job, whatever their times"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show splits, shards, bytes and time, and exit"
    )
    parser.add_argument(
        "--price", metavar="P", type=float, help="price of a worker per hour, for the cost in --dry-run"
    )
