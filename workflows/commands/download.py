"""Download Wikipedia dumps, going on where an earlier download stopped, and check them.

Takes the multistream dump, which `tokenfree preprocess` reads in parallel, and its index. A file that is there and has
the SHA-1 that the mirror lists is left alone. The last lines show the command that turns the files into windows.

Examples:
  tokenfree download sw --output dumps
  tokenfree download sw simplewiki --output dumps --date 20260301 --dry-run
  tokenfree download en --output dumps --mirror https://mirror.accum.se/mirror/wikimedia.org/dumps
"""

import argparse
import os
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from preprocess.errors import UserError
from preprocess.live_line import LiveLine

if TYPE_CHECKING:
    from preprocess.download import Item, Progress
    from preprocess.mirror import Dump

MIRROR_VARIABLE = "TOKENFREE_MIRROR"
PART_NUMBER = r"\d+\.xml.*"


class DownloadLine(LiveLine):
    """The live line of a download: wiki, bytes of all files, rate and time left; or why nothing moves."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.start: float | None = None

    def __call__(self, progress: "Progress") -> None:
        """Show how far the files are."""
        now = time.monotonic()
        if self.start is None:
            self.start = now
        of = "" if progress.total is None else f" of {progress.total / 1e6:,.1f}"
        wiki = progress.name.partition("-pages")[0]  # whole names would wrap the line
        parts = [wiki, f"{progress.done / 1e6:,.1f}{of} MB"]
        if now - self.start > 1:
            rate = progress.received / (now - self.start)
            parts.append(f"{rate / 1e6:.1f} MB/s")
            if progress.total is not None and progress.done < progress.total:
                minutes, seconds = divmod(int((progress.total - progress.done) / rate), 60)
                parts.append(f"{minutes}:{seconds:02} left")
        self.show(" · ".join(parts))

    def clear(self) -> None:
        """Forget what is shown, so that plain lines can follow."""
        if self.live and self.shown:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
        self.shown = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`LANGUAGE_OR_WIKI [...] --output DIR [--mirror URL] [--date latest|YYYYMMDD] [--dry-run]`."""
    parser.add_argument("names", metavar="LANGUAGE_OR_WIKI", nargs="+", help="a language (sw) or a database (swwiki)")
    parser.add_argument("--output", metavar="DIR", required=True, help="the folder for the files")
    parser.add_argument(
        "--mirror", metavar="URL", help=f"default: ${MIRROR_VARIABLE}, or else https://dumps.wikimedia.org"
    )
    parser.add_argument("--date", metavar="YYYYMMDD", default="latest", help="which dump; default: latest")
    parser.add_argument("--dry-run", action="store_true", help="only show the files and their sizes")


def run(args: argparse.Namespace) -> int:
    """Find the files, download what is missing, and show what to do with them."""
    from preprocess.download import check_room, download, plan
    from preprocess.fetch import Client
    from preprocess.mirror import MIRROR, Mirror, database

    if "://" in args.output:
        raise UserError(f"--output {args.output}: downloads need a folder of this machine")
    folder = Path(args.output)
    with DownloadLine() as line:
        client = Client(notice=line.show)
        mirror = Mirror.at(args.mirror or os.environ.get(MIRROR_VARIABLE) or MIRROR, client)
        dumps = [mirror.dump(wiki, args.date) for wiki in dict.fromkeys(map(database, args.names))]
        items = plan(dumps, folder, client)
        line.clear()
        for item in items:
            print(f"  {item.file.name:<64}{_state(item)}", flush=True)
        if args.dry_run:
            check_room(items, folder)
            return 0
        download(items, folder, client, line)
        line.clear()
    fetched = sum(item.state != "whole" for item in items)
    print(f"{folder}: {fetched} of {len(items)} files downloaded; all have the SHA-1 that {mirror.url} lists")
    print(f"  next        {_next_command(dumps, folder)}")
    return 0


def _state(item: "Item") -> str:
    if item.state == "whole":
        return "already here, SHA-1 checked"
    size = "size unknown" if item.size is None else f"{item.size / 1e6:,.1f} MB"
    return {
        "absent": size,
        "begun": f"{size}, of which {item.have / 1e6:,.1f} MB are here",
        "damaged": f"{size}; the file here has another SHA-1 and will be replaced",
    }[item.state]


def _next_command(dumps: Sequence["Dump"], folder: Path) -> str:
    place = shlex.quote(str(folder))
    inputs = []
    for dump in dumps:
        name, *more = dump.articles
        # There may be a hundred parts: the pattern of their names says it shorter.
        inputs.append(f"{place}/{re.sub(PART_NUMBER, '[0-9]*.xml*.bz2', name) if more else name}")
    output = f"data/{dumps[0].wiki}" if len(dumps) == 1 else "data/wikipedia"
    return f"tokenfree preprocess --wikipedia {' '.join(inputs)} --output {output}"
