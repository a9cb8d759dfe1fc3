"""`ray start` for several nodes that keep to 127.0.0.1: python -m tokenfree.train.ray.loopback_node start ...

Ray has no option for it. The variable RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, which all processes of the cluster are to
have, makes Ray take 127.0.0.1 for the address of a machine, but also refuse a second node.
"""

from __future__ import annotations

import sys

from ray._private import ray_constants, services
from ray.scripts import scripts

LOOPBACK = "127.0.0.1"


def main() -> None:
    """Run Ray's command line with the arguments of this process."""
    services.get_node_ip_address = lambda address=None: LOOPBACK
    ray_constants.ENABLE_RAY_CLUSTER = True  # in this process alone: a second node is not refused
    sys.argv[0] = "ray"
    scripts.main()


if __name__ == "__main__":
    main()
