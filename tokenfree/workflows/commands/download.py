"""Download Wikipedia dumps and check them. An interrupted download resumes.

Fetches the multistream dump, which `tokenfree preprocess` reads in parallel. A file that already has the
SHA-1 listed by the mirror is not fetched again. The last lines show the command that preprocesses the files.

Examples:
  tokenfree download sw --output dumps
  tokenfree download sw simplewiki --output dumps --date 20260301 --dry-run
  tokenfree download en --output dumps --mirror https://mirror.accum.se/mirror/wikimedia.org/dumps
"""

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError

if TYPE_CHECKING:
    from tokenfree.preprocess.download import Dump

MIRROR_VARIABLE = "TOKENFREE_MIRROR"
PART_NUMBER = r"\d+\.xml.*"


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


def run(args: argparse.Namespace) -> int:
    """Download missing files, and print the next command.

    Raises UserError if folder or mirror cannot be used.
    """
    from tokenfree.preprocess.download import MIRROR, Mirror, database, download, plan
    from tokenfree.workflows.terminal.progress import DownloadLine

    if "://" in args.output or Path(args.output).is_file():
        raise UserError(f"--output {args.output}: downloads need a folder of this machine")
    folder = Path(args.output)
    with DownloadLine(verbosity=args.verbosity) as line:
        address = args.mirror or os.environ.get(MIRROR_VARIABLE) or MIRROR
        mirror = Mirror(address.rstrip("/"), allow_http=args.allow_http, notice=line.show)
        mirror.check()
        dumps = [mirror.dump(wiki, args.date) for wiki in dict.fromkeys(map(database, args.names))]
        items = plan(dumps, folder, mirror)
        line.clear()
        for item in items:
            state = "already here, SHA-1 checked" if item.is_whole else f"{item.size / 1e6:,.1f} MB"
            print(f"  {item.file.name:<64}{state}", flush=True)
        if args.dry_run:
            return 0
        download(items, folder, mirror, line)
        line.clear()
    fetched = sum(not item.is_whole for item in items)
    print(f"{folder}: {fetched} of {len(items)} files downloaded; all have the SHA-1 that {mirror.url} lists")
    print(f"  next        {_next_command(dumps, folder)}")
    return 0


def _next_command(dumps: Sequence["Dump"], folder: Path) -> str:
    quoted = shlex.quote(str(folder))
    inputs = []
    for dump in dumps:
        first, *more = dump.files
        # A dump can have a hundred parts, so the command uses a glob for them.
        inputs.append(
            f"{quoted}/{re.sub(PART_NUMBER, '[0-9]*.xml*.bz2', first.name) if more else first.name}"
        )
    output = f"data/{dumps[0].wiki}" if len(dumps) == 1 else "data/wikipedia"
    return f"tokenfree preprocess wikipedia-tiny --wikipedia {' '.join(inputs)} --output {output}"
