"""Which addresses a process listens on or is connected from, from Linux's /proc."""

import contextlib
import ipaddress
import os
from pathlib import Path

_LISTEN = "0A"


def addresses(pid: int, *, connected: bool = False) -> list[str]:
    """The own addresses of the TCP sockets that the process listens on, or of those `connected`; none if it is gone."""
    sockets = set[str]()
    tables = list[str]()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed since
                sockets.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
        tables += [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [
        _readable(row[1].split(":")[0])
        for row in rows
        if (row[3] != _LISTEN) == connected and row[9] in sockets
    ]


def _readable(number: str) -> str:
    """An address as it is written, of its words in hexadecimal and in the byte order of the machine."""
    words = [bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
