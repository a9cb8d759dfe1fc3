"""The file `NAME.part` that a download appends to, until it is whole and takes the name `NAME`.

`NAME.part.etag` beside it keeps what tells one version of the server's file from another, so that a later command can
ask for the rest of the same version only; `NAME.part.lock` keeps a second command away.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import lock

BLOCK = 1 << 18
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class PartFile:
    """The unfinished form of the file `final`."""

    final: Path

    @property
    def path(self) -> Path:
        """What is here so far."""
        return self.final.with_name(self.final.name + ".part")

    @property
    def etag(self) -> Path:
        """Holds an ETag or a date, as the server wrote it; empty where the server tells neither."""
        return self.final.with_name(self.final.name + ".part.etag")

    @property
    def lock(self) -> Path:
        """The lock of the process that receives the file."""
        return self.final.with_name(self.final.name + ".part.lock")

    def size(self) -> int:
        """Bytes here so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def range_headers(self, have: int) -> dict[str, str]:
        """Asks for what is missing, on the condition that the file is still the one begun."""
        if not have:
            return {}
        known = self.etag.read_text(encoding="latin-1") if self.etag.exists() else ""
        return {"Range": f"bytes={have}-", **({"If-Range": known} if known else {})}

    def remember(self, headers: Any) -> None:
        """Keep what tells one version of the file from another. A weak ETag may not be used for ranges (RFC 9110)."""
        strong = headers.get("ETag", "")
        known = strong if strong.startswith('"') else headers.get("Last-Modified", "")
        self.etag.write_text(known, encoding="latin-1")

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The file opened to append to it, by one process at a time.

        Raises:
            UserError: the disk is full, or another process has the file open.
        """
        held = UserError(f"{self.path}: another command is downloading this file; wait for it")
        try:
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(JobError):  # a disk without locks: the SHA-1 still guards
                    stack.enter_context(lock(self.lock, seconds=0, held=held))
                    stack.callback(self.lock.unlink, missing_ok=True)  # before it is let go; nobody waits for it
                yield stack.enter_context(open(self.path, "ab"))
        except OSError as error:
            if error.errno in _FULL:
                raise UserError(f"{self.path}: the disk is full; free space and give the same command again") from error
            raise

    def remove(self) -> None:
        """Forget what is here, and what is known of it."""
        for path in (self.path, self.etag, self.lock):
            path.unlink(missing_ok=True)

    def commit(self) -> None:
        """Give the file its final name, once its bytes are on the disk."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.path, self.final)
        self.remove()
