"""How much memory this process may have."""

from __future__ import annotations

import os
import resource

GIB = 1 << 30


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def address_space() -> int | None:
    """Bytes of address space that this process may have (`ulimit -v`); None: as many as it wants."""
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if own == resource.RLIM_INFINITY else own


def memory_limit() -> int:
    """Bytes of this machine's memory, or of this process's address space where that is less."""
    own = address_space()
    return machine_memory() if own is None else min(machine_memory(), own)
