"""What a pod runs before it ends, as the manifest has it, on two hosts of Ray: it drains the host that it is run on."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.infra.manifests import KUBERAY, build, one
from tests.namespaces import permitted
from tests.train.recovery.network import Network

DRAINING = "import ray; ray.init(log_to_driver=False); "
DRAINING += "from tokenfree.train.ray.internals import draining_nodes as found; "
DRAINING += (
    "print([n['NodeManagerAddress'] for n in ray.nodes() if n['NodeID'] in found() or not n['Alive']])"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray_is_told_that_the_pod_ends(tmp_path: Path) -> None:
    if not permitted():
        pytest.skip("network namespaces need root and the program ip")
    (group,) = one(build(KUBERAY / "overlays" / "cluster-cpu"), "RayCluster")["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    shell, option, script = container["lifecycle"]["preStop"]["exec"]["command"]
    drain, rest = script.split("; ")
    assert rest == "sleep 30"
    network = Network(tmp_path)
    try:
        for number, cpus in ((1, 0), (2, 1)):
            network.add(number)
            network.start_node(number, cpus)
            time.sleep(3)
        network.wait_for_nodes(2)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {
            **os.environ,
            "PATH": path,
            "RAY_ADDRESS": f"{network.address(1)}:6379",
        }
        done = subprocess.run(
            [*as_in_the_pod(network.name(2)), shell, option, drain],
            env=environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = subprocess.run(
            network.inside(1, [sys.executable, "-c", DRAINING]),
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert told.stdout.strip().splitlines()[-1:] == [f"['{network.address(2)}']"], told.stderr
    finally:
        network.close()


def as_in_the_pod(name: str) -> list[str]:
    """By which a command sees the network, processes and files that Ray does in the namespace of that name."""
    pids = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, check=True
    ).stdout.split()
    (raylet,) = [
        pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/raylet")
    ]
    return ["nsenter", "--target", raylet, "--mount", "--pid", "--net"]
