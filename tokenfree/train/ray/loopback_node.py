"""`ray start` for several nodes on 127.0.0.1: python -m tokenfree.train.ray.loopback_node start ...

Ray has no option for this. With the variable RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in all processes of the
cluster, Ray uses 127.0.0.1 as the address of a machine, but refuses a second node.
"""

import sys

from ray._private import ray_constants, services
from ray.scripts import scripts

LOOPBACK = "127.0.0.1"


def main() -> None:
    services.get_node_ip_address = lambda address=None: LOOPBACK
    # Only in this process, so that it accepts a second node.
    ray_constants.ENABLE_RAY_CLUSTER = True
    sys.argv[0] = "ray"
    scripts.main()


if __name__ == "__main__":
    main()
