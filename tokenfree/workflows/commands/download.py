"""Download Wikipedia dumps and check them. An interrupted download resumes.

Fetches the multistream dump, which `tokenfree preprocess` reads in parallel. A file that already has the
SHA-1 listed by the mirror is not fetched again. The last lines show the command that preprocesses the files.

Examples:
  tokenfree download sw --output dumps
  tokenfree download sw simplewiki --output dumps --date 20260301 --dry-run
  tokenfree download en --output dumps --mirror https://mirror.accum.se/mirror/wikimedia.org/dumps
"""

import argparse

MIRROR_VARIABLE = "TOKENFREE_MIRROR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="LANGUAGE_OR_WIKI", nargs="+", help="a language (sw) or a database (swwiki)"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the files")
    parser.add_argument(
        "--mirror", metavar="URL", help=f"default: ${MIRROR_VARIABLE}, or else https://dumps.wikimedia.org"
    )
    parser.add_argument(
        "--date", metavar="YYYYMMDD", default="latest", help="date of the dump (default: latest)"
    )
    parser.add_argument("--allow-http", action="store_true", help="allow lists and files without encryption")
    parser.add_argument("--dry-run", action="store_true", help="show the files and their sizes, and exit")
