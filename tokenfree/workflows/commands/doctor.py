"""Report what is missing on this machine, and how to get it.

Checks Python, packages, cores, GPUs, memory, limits, Java and storage. With a pretraining RECIPE, also
reports whether a step fits the machine's memory, and which precision is faster.

With --cluster, also checks each node of the Ray cluster at RAY_ADDRESS: versions, memory, limits, GPUs, and
access to the places of --storage.

Examples:
  tokenfree doctor --storage runs s3://bucket/runs
  tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs
"""

import argparse

from tokenfree.workflows.recipes.options import add_trust_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="pretraining recipe whose memory and precision to check"
    )
    parser.add_argument(
        "--storage", metavar="URL", nargs="+", default=["."], help="folders or URLs to write to"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="check each node of the Ray cluster at RAY_ADDRESS"
    )
    add_trust_argument(parser, "RECIPE")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
