"""`ray up`, `ray down` and `ray exec`, of the Ray that tokenfree runs with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from tokenfree.preprocess.common.errors import JobError
from tokenfree.workflows.cluster.profiles import Profile, asks_for_token

NEWER_AUTOSCALER = "RAY_UP_enable_autoscaler_v2"


def up(profile: Profile) -> None:
    """Start the cluster, or bring it to what the profile says now. Raises JobError where Ray fails."""
    if not profile.is_paid:
        # Ray's newer autoscaler (2.60) takes the head of hosts of one's own for a worker that is gone, and starts only
        # the first of two workers.
        os.environ.setdefault(NEWER_AUTOSCALER, "0")
    _ray("up", str(profile.path), "--yes", "--no-config-cache", "--disable-usage-stats")


def down(profile: Profile) -> None:
    """Take the cluster down, with its machines. Raises JobError where Ray fails."""
    _ray("down", str(profile.path), "--yes")


def status(profile: Profile) -> None:
    """Print the nodes and what runs on them. Raises JobError where the head does not answer."""
    mode = "RAY_AUTH_MODE=token " if asks_for_token(profile) else ""  # which the head's shell does not know
    _ray("exec", str(profile.path), f"{mode}ray status", "--no-config-cache")


def _ray(*arguments: str) -> None:
    """Run Ray's own command line, whose output is the user's to see."""
    sys.stdout.flush()
    environment: Mapping[str, str] = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-P", "-m", "ray.scripts.scripts", *arguments], env=environment)
    if done.returncode:
        raise JobError(f"ray {arguments[0]} failed with status {done.returncode}; what it printed above says why")
