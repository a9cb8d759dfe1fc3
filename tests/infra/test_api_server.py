"""The overlays applied to an API server of Kubernetes, which checks them as it always does; and KubeRay's operator on
it, which makes pods of them. No pod runs: what a kubelet would say of them is said by the test.

The namespaces are of Kubernetes' strictest kind (`restricted`): a pod that asks for more rights is refused.
"""

import datetime
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.api_server import ApiServer, api_server, await_true, programs
from tests.infra.manifests import FLINK, KUBERAY, OVERLAYS, named, pods
from tools.engines.processes import EngineProcess, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]
RAY = [overlay for overlay in OVERLAYS if overlay.is_relative_to(KUBERAY)]
STRICT = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def apply(server: ApiServer) -> Callable[..., str]:
    """Applies an overlay to a namespace of its own, whose name it gives."""

    def apply(overlay: Path) -> str:
        namespace = named(overlay)
        server("create", "namespace", namespace)
        server("label", "namespace", namespace, STRICT)
        server("-n", namespace, "apply", "-k", str(overlay), "--validate=strict")
        return namespace

    return apply


@pytest.fixture
def operator(server: ApiServer, tmp_path: Path) -> Iterator[EngineProcess]:
    (program,) = programs("ray-operator")
    metrics, health = free_ports(2)
    options = [f"--metrics-addr=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}"]
    command = [program, *options, "--enable-leader-election=false"]
    process = EngineProcess("operator", command, tmp_path, {"KUBECONFIG": str(server.config)})
    yield process
    process.signal()


@pytest.mark.parametrize("overlay", [path for path in OVERLAYS if path.is_relative_to(FLINK)], ids=named)
def test_pods_of_flink_are_admitted(overlay: Path, server: ApiServer, apply: Callable[..., str]) -> None:
    namespace = apply(overlay)
    flink = server.get("-n", namespace, "flinkdeployment/tokenfree-flink")
    for number, template in enumerate(pods(flink)):
        for container in template["spec"]["containers"]:
            container.setdefault("image", flink["spec"]["image"])  # as the operator fills it in
        template["spec"]["serviceAccountName"] = flink["spec"]["serviceAccount"]
        admit(server, namespace, f"pod-{number}", template)
    for job in server.get("-n", namespace, "jobs")["items"]:
        admit(server, namespace, "job", job["spec"]["template"])


def test_mistakes_are_refused(server: ApiServer) -> None:
    manifest = server.run("kustomize", str(KUBERAY / "overlays" / "pretrain-cpu")).stdout
    for right, wrong in (("backoffLimit: 3", "backofLimit: 3"), ("mode: token", "mode: tokens")):
        assert right in manifest
        changed = manifest.replace(right, wrong)
        done = server.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=changed)
        assert done.returncode != 0
        assert wrong.split(":")[0].split(" ")[-1] in done.stderr


@pytest.mark.parametrize("overlay", RAY, ids=named)
def test_the_operator_makes_pods_of_each(
    overlay: Path, server: ApiServer, apply: Callable[..., str], operator: EngineProcess
) -> None:
    namespace = apply(overlay)
    (cluster,) = wait_for_clusters(server, namespace, 1, operator)
    wanted = 1 + sum(group["replicas"] for group in cluster["spec"]["workerGroupSpecs"])
    found = wait_for_pods(server, namespace, cluster, wanted, operator)
    kinds = {pod["metadata"]["labels"]["ray.io/node-type"] for pod in found}
    assert kinds == {"head", "worker"}
    is_gpu = not overlay.name.endswith("-cpu")
    policy = server.get("-n", namespace, "networkpolicy/tokenfree-ray")["spec"]["podSelector"]["matchLabels"]
    for pod in found:
        assert policy.items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["serviceAccountName"] == "tokenfree"
        (container,) = pod["spec"]["containers"]
        (command,) = container["args"]
        environment = {entry["name"]: entry for entry in container["env"]}
        token = environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert "auth_token" in server.get("-n", namespace, f"secret/{token['name']}")["data"]
        is_head = pod["metadata"]["labels"]["ray.io/node-type"] == "head"
        assert ("--num-cpus=0" in command) == is_head
        assert ("--num-gpus=1" in command) == (is_gpu and not is_head)
        assert "httpGet" in container["livenessProbe"]  # the image has no wget, by which older ones ask
    (service,) = server.get("-n", namespace, "services")["items"]
    assert service["spec"]["type"] == "ClusterIP"
    server("delete", "namespace", namespace, "--wait=false")


@pytest.mark.timeout(600)
def test_a_job_that_failed_is_tried_again_by_the_same_command(
    server: ApiServer, apply: Callable[..., str], operator: EngineProcess
) -> None:
    server("create", "namespace", "retried")
    server("label", "namespace", "retried", STRICT)
    server("-n", "retried", "apply", "-k", str(KUBERAY / "overlays" / "pretrain-cpu"), "--validate=strict")
    asked = server.get("-n", "retried", "rayjob/tokenfree-pretrain")["spec"]
    clusters, commands = [], []
    for _ in range(2):
        (cluster,) = wait_for_clusters(server, "retried", 1, operator, other_than=clusters)
        clusters.append(cluster["metadata"]["name"])
        for pod in wait_for_pods(server, "retried", cluster, 3, operator):
            say_ready(server, "retried", pod)
        name = cluster["metadata"]["name"]
        await_true(lambda: bool(server.get("-n", "retried", "jobs")["items"]), operator.log)
        (job,) = server.get("-n", "retried", "jobs")["items"]
        admit(server, "retried", f"submitter-{len(clusters)}", job["spec"]["template"])
        commands.append(str(job["spec"]["template"]["spec"]["containers"][0]))
        assert name in commands[-1]
        say_failed(server, "retried", job)
        await_true(lambda: not server.get("-n", "retried", "jobs")["items"], operator.log)
    assert len(set(clusters)) == 2
    for command in commands:
        assert all(word in command for word in shlex.split(asked["entrypoint"]))
    assert server.get("-n", "retried", "rayjob/tokenfree-pretrain")["status"]["failed"] == 2


def admit(server: ApiServer, namespace: str, name: str, template: dict[str, Any]) -> None:
    """Have the API server look at a pod of the template, and take it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
    pod["metadata"] = {"name": name, "labels": template["metadata"]["labels"]}
    options = ["--dry-run=server", "--validate=strict", "-f", "-"]
    server("-n", namespace, "create", *options, given=json.dumps(pod))


def wait_for_clusters(
    server: ApiServer,
    namespace: str,
    number: int,
    operator: EngineProcess,
    other_than: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the RayClusters of a namespace, once it has this number of them."""

    def found() -> list[dict[str, Any]]:
        items = server.get("-n", namespace, "rayclusters")["items"]
        return [item for item in items if item["metadata"]["name"] not in (other_than or [])]

    await_true(lambda: len(found()) == number, operator.log)
    return found()


def wait_for_pods(
    server: ApiServer, namespace: str, cluster: dict[str, Any], number: int, operator: EngineProcess
) -> list[dict[str, Any]]:
    """Return the pods of a RayCluster, once it has this number of them."""
    label = f"ray.io/cluster={cluster['metadata']['name']}"

    def found() -> list[dict[str, Any]]:
        return server.get("-n", namespace, "pods", "-l", label)["items"]

    await_true(lambda: len(found()) == number, operator.log)
    return found()


def say_ready(server: ApiServer, namespace: str, pod: dict[str, Any]) -> None:
    """Say of a pod what its kubelet would."""
    status = {
        "phase": "Running",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    say(server, namespace, f"pod/{pod['metadata']['name']}", status)


def say_failed(server: ApiServer, namespace: str, job: dict[str, Any]) -> None:
    """Say of a Job what its controller would once it has tried often enough."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    failed = {
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "lastTransitionTime": now,
        "lastProbeTime": now,
    }
    conditions = [{"type": kind, **failed} for kind in ("FailureTarget", "Failed")]
    say(
        server,
        namespace,
        f"job/{job['metadata']['name']}",
        {"startTime": now, "failed": 1, "conditions": conditions},
    )


def say(server: ApiServer, namespace: str, name: str, status: dict[str, Any]) -> None:
    """Write the status of an object."""
    patch = json.dumps({"status": status})
    server("-n", namespace, "patch", name, "--subresource=status", "--type=merge", "--patch", patch)
