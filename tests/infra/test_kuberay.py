"""What the overlays of KubeRay say: of the cluster, the machines, and the commands that they run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.infra.manifests import GPUS, KUBERAY, OVERLAYS, Manifest, build, compose, one, ray_cluster
from tokenfree.workflows import cli
from tokenfree.workflows.commands import pretrain, sweep
from tokenfree.workflows.recipes.options import split_arguments
from tokenfree.workflows.work.cluster import entrypoint_cpus
from tools.docs.address import project

RAY = [overlay for overlay in OVERLAYS if overlay.is_relative_to(KUBERAY)]
JOBS = [overlay for overlay in RAY if overlay.name.startswith(("pretrain", "sweep"))]
COMMANDS = {"pretrain": pretrain, "sweep": sweep}

each = pytest.mark.parametrize("overlay", RAY, ids=lambda overlay: overlay.name)
each_job = pytest.mark.parametrize("overlay", JOBS, ids=lambda overlay: overlay.name)


def cluster(overlay: Path) -> Manifest:
    (found,) = [manifest for manifest in build(overlay) if manifest["kind"] in ("RayCluster", "RayJob")]
    return ray_cluster(found)


def worker(spec: Manifest) -> dict[str, Any]:
    (group,) = spec["workerGroupSpecs"]
    return group["template"]["spec"]


@each
def test_ray_asks_for_its_token_and_shows_no_dashboard(overlay: Path) -> None:
    spec = cluster(overlay)
    assert spec["authOptions"] == {"mode": "token"}  # without a name KubeRay makes the Secret
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert spec["headGroupSpec"]["enableIngress"] is False
    assert "headService" not in spec["headGroupSpec"]


@each
def test_ray_is_that_of_the_lock_and_the_head_computes_nothing(overlay: Path) -> None:
    spec = cluster(overlay)
    assert f"ray=={spec['rayVersion']}" in (REPOSITORY / "requirements.lock").read_text()
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


@each
def test_pods_request_scratch_disk_and_the_head_is_not_evicted(overlay: Path) -> None:
    manifests = build(overlay)
    spec = cluster(overlay)
    for pod in (worker(spec), spec["headGroupSpec"]["template"]["spec"]):
        (container,) = pod["containers"]
        resources = container["resources"]
        assert {"ephemeral-storage"} <= resources["requests"].keys() & resources["limits"].keys()
    disk = worker(spec)["containers"][0]["resources"]["requests"]["ephemeral-storage"]
    (volume,) = [volume for volume in worker(spec)["volumes"] if volume["name"] == "cache"]
    assert int(disk.removesuffix("Gi")) > int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi"))
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    labels = spec["headGroupSpec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == {**labels, "ray.io/node-type": "head"}
    assert budget["minAvailable"] == 1


@each
def test_the_image_is_the_one_that_the_overlay_names_everywhere(overlay: Path) -> None:
    (manifest,) = [found for found in build(overlay) if found["kind"] in ("RayCluster", "RayJob")]
    images = set(re.findall(r"'image': '([^']+)'", str(manifest)))
    tag = "cpu" if overlay.name.endswith("-cpu") else "cuda"
    assert images == {f"registry.example.org/tokenfree-train:{project()['version']}-{tag}"}


@each_job
def test_commands_are_ours_and_name_places_that_all_pods_reach(overlay: Path) -> None:
    job = one(build(overlay), "RayJob")["spec"]
    program, *words = shlex.split(job["entrypoint"])
    shared = [mount["mountPath"] for mount in worker(job["rayClusterSpec"])["containers"][0]["volumeMounts"]]
    assert program == "tokenfree"
    (parser,) = cli._leaves(cli._parser({words[0]: COMMANDS[words[0]]}))
    options = [option for action in parser._actions for option in action.option_strings]
    args = parser.parse_args(split_arguments(words[0], words[1:], options, COMMANDS[words[0]].KIND)[0])
    for place in (*args.data, args.output):
        assert "://" in place or ("/mnt/shared" in shared and place.startswith("/mnt/shared/"))
    assert entrypoint_cpus(words) == 0  # it leads workers, from the head, which has no CPUs for others


@each_job
def test_jobs_are_tried_again_with_as_many_workers_as_they_want(overlay: Path) -> None:
    job = one(build(overlay), "RayJob")["spec"]
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert job["backoffLimit"] > 0
    assert job["shutdownAfterJobFinishes"] is True
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    words = shlex.split(job["entrypoint"])
    if "--workers" in words:
        # `pretrain` gives its workers GPUs if there are as many as it wants at most when it begins.
        assert int(words[words.index("--workers") + 1].split(":")[-1]) == group["replicas"]


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("first", ["gpu", "spot"])
def test_gpus_and_spot_in_either_order(gpu: str, first: str, tmp_path: Path) -> None:
    parts = [gpu, "spot"] if first == "gpu" else ["spot", gpu]
    spec = one(compose(parts, tmp_path), "RayCluster")["spec"]
    pod = worker(spec)
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    affinity = pod["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {term["matchExpressions"][0]["key"] for term in terms} == {
        "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name", "nvidia.com/gpu.product",
    }  # fmt: skip
    assert all(gpu in value.lower() for term in terms for value in term["matchExpressions"][0]["values"])
    assert len(affinity["preferredDuringSchedulingIgnoredDuringExecution"]) == 4
    keys = {toleration["key"] for toleration in pod["tolerations"]}
    assert keys == {
        "nvidia.com/gpu",
        "sku",
        "cloud.google.com/gke-spot",
        "kubernetes.azure.com/scalesetpriority",
    }
    head = spec["headGroupSpec"]["template"]["spec"]
    assert "tolerations" not in head
    assert "nvidia.com/gpu" not in str(head)


def test_a_shared_volume_is_mounted_on_all_pods(tmp_path: Path) -> None:
    manifests = compose(["shared-volume", "sweep"], tmp_path)
    claim = one(manifests, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    spec = ray_cluster(one(manifests, "RayJob"))
    for pod in (spec["headGroupSpec"]["template"]["spec"], worker(spec)):
        assert {"name": "shared", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod[
            "volumes"
        ]
        assert {"name": "shared", "mountPath": "/mnt/shared"} in pod["containers"][0]["volumeMounts"]
