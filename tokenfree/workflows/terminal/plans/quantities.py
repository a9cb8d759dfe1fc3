"""Times, sizes and sums of money in words."""

from __future__ import annotations

from tokenfree.workflows.terminal.stage_line import counted


def time_of(seconds: float) -> str:
    """`40 seconds`, `12 minutes`, `3.4 hours`, `12.5 days`."""
    if seconds < 120:
        return counted(max(1, round(seconds)), "second")
    if seconds < 7200:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:,.1f} hours" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def size_of(num_bytes: float) -> str:
    """`512 MB`, `3.4 GB`, `21.0 TB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1e6:,.3g} MB" if num_bytes < 1e7 else f"{num_bytes / 1e6:,.0f} MB"


def money(amount: float) -> str:
    """`681.31`, `0.0012`: in whatever currency the price was."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"
