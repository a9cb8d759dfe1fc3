"""Do the work of `tokenfree download`."""

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tokenfree.core.errors import UserError
from tokenfree.preprocess.download import MIRROR, Dump, Mirror, database, download, plan
from tokenfree.workflows.commands.download import MIRROR_VARIABLE
from tokenfree.workflows.terminal.progress import DownloadLine

PART_NUMBER = r"\d+\.xml.*"


def run(args: argparse.Namespace) -> None:
    """Download missing files, and print the next command.

    Raises UserError if folder or mirror cannot be used.
    """
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
            return
        download(items, folder, mirror, line)
        line.clear()
    fetched = sum(not item.is_whole for item in items)
    print(f"{folder}: {fetched} of {len(items)} files downloaded; all have the SHA-1 that {mirror.url} lists")
    print(f"  next        {_next_command(dumps, folder)}")


def _next_command(dumps: Sequence[Dump], folder: Path) -> str:
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
