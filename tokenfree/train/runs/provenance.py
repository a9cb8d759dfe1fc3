"""What a result was made with: the command, the versions of packages, the commit of the code, the shape of the machine.

Nothing that identifies a person or a host, and no value of the environment, is asked for. Nothing is compared by it:
what a run is, its recipe and data say.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement

from tokenfree.core.machine import cores, own_requirements

_GPUS = Path("/proc/driver/nvidia/gpus")


def attempt() -> dict[str, Any]:
    """What config.yaml and sweep.yaml say of each command that trained.

    These are `time` (UTC), `command`, `commit`, `machine`, `packages`, and `hashes`: that the folder has a hashes.json
    when it is finished (see train/runs/hashes.py), which those of earlier versions have not.
    """
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command(),
        "commit": commit(),
        "machine": machine(),
        "packages": packages(),
        "hashes": True,
    }


def command() -> str:
    """The command line of this process, its arguments as they came from the shell."""
    program, *arguments = sys.argv or [""]
    path = Path(program)
    name = path.parent.name if path.name == "__main__.py" else path.name  # of `python -m tokenfree`
    return shlex.join(["python" if name in ("", "-c") else name, *arguments])


def commit(folder: Path | None = None) -> str | None:
    """The commit of the work tree that has the code in it (with `-dirty` where files differ); None outside of one.

    Args:
        folder: of the code, by default ours. A package that is installed into an environment inside somebody's work
            tree is no part of that.
    """
    folder = Path(__file__).parents[2] if folder is None else folder
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def machine() -> dict[str, Any]:
    """The shape of this machine: `cores` that may be used, `memory_gib`, `accelerators`, `system` and `python`."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": cores(),
        "memory_gib": round(memory / 2**30, 1),
        "accelerators": accelerators(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def accelerators() -> list[str]:
    """The GPUs that this process may use, by model where the driver tells.

    They are not asked themselves: that would take some of their memory in a process which need not use them.
    """
    count = torch.cuda.device_count()
    models = []
    for path in sorted(_GPUS.glob("*/information")) if count else []:
        with contextlib.suppress(OSError):
            models += re.findall(r"^Model:\s*(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return models if len(models) == count else ["CUDA device"] * count


def packages() -> dict[str, str]:
    """The versions of tokenfree and of what it needs, as far as they are installed."""
    found: dict[str, str] = {}
    needed = [Requirement(line) for line in own_requirements()]
    for name in ["tokenfree", *(each.name for each in needed if "extra" not in str(each.marker))]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where it fails or is not there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
