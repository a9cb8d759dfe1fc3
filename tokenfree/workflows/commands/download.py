"""Download Wikipedia dumps and check them. An interrupted download resumes.

Fetches the multistream dump, which `tokenfree preprocess` reads in parallel, and its index. A file that already has the
SHA-1 listed by the mirror is not fetched again. The last lines show the command that preprocesses the files.

Examples:
  tokenfree download sw --output dumps
  tokenfree download sw simplewiki --output dumps --date 20260301 --dry-run
  tokenfree download en --output dumps --mirror https://mirror.accum.se/mirror/wikimedia.org/dumps
"""

import argparse
import math
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError

if TYPE_CHECKING:
    from tokenfree.preprocess.download import Dump, Item

MIRROR_VARIABLE = "TOKENFREE_MIRROR"
UNSIZED_GB = 30  # English Wikipedia in one file has 25 GB
PART_NUMBER = r"\d+\.xml.*"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments.

    `LANGUAGE_OR_WIKI [...] --output DIR [--mirror URL] [--date latest|YYYYMMDD] [--max-gb GB] [--allow-http]
    [--dry-run]`
    """
    parser.add_argument("names", metavar="LANGUAGE_OR_WIKI", nargs="+", help="a language (sw) or a database (swwiki)")
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the files")
    parser.add_argument(
        "--mirror", metavar="URL", help=f"default: ${MIRROR_VARIABLE}, or else https://dumps.wikimedia.org"
    )
    parser.add_argument("--date", metavar="YYYYMMDD", default="latest", help="date of the dump (default: latest)")
    parser.add_argument(
        "--max-gb",
        metavar="GB",
        type=float,
        default=UNSIZED_GB,
        help=f"at most taken of a file whose size the mirror does not tell; default: {UNSIZED_GB}",
    )
    parser.add_argument("--allow-http", action="store_true", help="allow lists and files without encryption")
    parser.add_argument("--dry-run", action="store_true", help="show the files and their sizes, and exit")


def run(args: argparse.Namespace) -> int:
    """Find the files, download those that are missing, and print the command that preprocesses them.

    Raises:
        UserError: The folder is an address, the mirror lacks the dump, or the disk is too small.
    """
    from tokenfree.preprocess.download import MIRROR, Client, Mirror, check_room, database, download, plan
    from tokenfree.workflows.terminal.progress import DownloadLine

    if "://" in args.output:
        raise UserError(f"--output {args.output}: downloads need a folder of this machine")
    if not 0 < args.max_gb < math.inf:
        raise UserError(f"--max-gb {args.max_gb:g}: how many GB of a file are taken at most; give a number such as 30")
    folder = Path(args.output)
    with DownloadLine(verbosity=args.verbosity) as line:
        client = Client(notice=line.show, allow_http=args.allow_http, unsized_bytes=round(args.max_gb * 1e9))
        mirror = Mirror.at(args.mirror or os.environ.get(MIRROR_VARIABLE) or MIRROR, client)
        dumps = [mirror.dump(wiki, args.date) for wiki in dict.fromkeys(map(database, args.names))]
        items = plan(dumps, folder, client)
        line.clear()
        for item in items:
            print(f"  {item.file.name:<64}{_state(item, args.max_gb)}", flush=True)
        if args.dry_run:
            check_room(items, folder)
            return 0
        download(items, folder, client, line)
        line.clear()
    fetched = sum(item.state != "whole" for item in items)
    print(f"{folder}: {fetched} of {len(items)} files downloaded; all have the SHA-1 that {mirror.url} lists")
    print(f"  next        {_next_command(dumps, folder)}")
    return 0


def _state(item: "Item", max_gb: float) -> str:
    if item.state == "whole":
        return "already here, SHA-1 checked"
    size = f"size unknown; up to {max_gb:g} GB (--max-gb)" if item.size is None else f"{item.size / 1e6:,.1f} MB"
    return {
        "absent": size,
        "begun": f"{size}, of which {item.have / 1e6:,.1f} MB are here",
        "damaged": f"{size}; the file here has another SHA-1 and will be replaced",
    }[item.state]


def _next_command(dumps: Sequence["Dump"], folder: Path) -> str:
    quoted = shlex.quote(str(folder))
    inputs = []
    for dump in dumps:
        name, *more = dump.articles
        # A dump can have a hundred parts, so the command uses a glob for them.
        inputs.append(f"{quoted}/{re.sub(PART_NUMBER, '[0-9]*.xml*.bz2', name) if more else name}")
    output = f"data/{dumps[0].wiki}" if len(dumps) == 1 else "data/wikipedia"
    return f"tokenfree preprocess wikipedia-tiny --wikipedia {' '.join(inputs)} --output {output}"
