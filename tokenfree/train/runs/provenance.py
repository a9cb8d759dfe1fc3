"""Provenance of a result: the command, package versions, the commit of the code, and the kind of machine.

It has nothing that identifies a person or a host. It is never compared: recipe and data alone identify a run.
"""

import contextlib
import importlib.metadata
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tokenfree.core.machine import GIB, cores, machine_memory, required_packages

_GPUS = Path("/proc/driver/nvidia/gpus")


def attempt() -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command(),
        "commit": commit(),
        "machine": machine(),
        "packages": packages(),
    }


def command() -> str:
    program, *arguments = sys.argv or [""]
    path = Path(program)
    # Run as `python -m tokenfree`.
    name = path.parent.name if path.name == "__main__.py" else path.name
    return shlex.join(["python" if name in ("", "-c") else name, *arguments])


def commit() -> str | None:
    """Return the commit of the checkout that holds the code, with `-dirty` if files differ; None without one."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip()


def machine() -> dict[str, Any]:
    return {
        "cores": cores(),
        "memory_gib": round(machine_memory() / GIB, 1),
        "accelerators": accelerators(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def accelerators() -> list[str]:
    """Return the GPUs that this process can use, without initializing CUDA, which would take GPU memory."""
    count = torch.cuda.device_count()
    models = []
    for path in sorted(_GPUS.glob("*/information")) if count else []:
        with contextlib.suppress(OSError):
            models += re.findall(r"^Model:\s*(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return models if len(models) == count else ["CUDA device"] * count


def packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in ["tokenfree", *required_packages()]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
