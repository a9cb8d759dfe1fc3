"""How much memory this process may have."""

from __future__ import annotations

import os
import resource


def memory_limit() -> int:
    """Bytes of this machine's memory, or of this process's address space (`ulimit -v`) where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return machine if own == resource.RLIM_INFINITY else min(machine, own)
