"""Every overlay is what Kubernetes and the operators take: by their own schemas, and by what their pods may do."""

import copy
import re
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.infra.manifests import GPUS, NATIVE, OVERLAYS, Manifest, build, compose, named, pods, problems

# The volume goes with some of each.
_VOLUME = {("l4", "spot"), ("h100", ""), ("", "spot")}
COMBINATIONS = [
    [part for part in (gpu, spot, "shared-volume" * ((gpu, spot) in _VOLUME), job) if part]
    for gpu, spot, job in product(("", *GPUS), ("", "spot"), ("", "pretrain", "sweep"))
]
_SECRET = re.compile(r"(?i)(password|secret|token|credential|access_?key)")
_ALLOWED = {"automountServiceAccountToken"}

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=named)


@each_overlay
@pytest.mark.parametrize("is_custom", [True, False], ids=["custom", "native"])
def test_overlays_fit_the_schemas(overlay: Path, is_custom: bool) -> None:
    manifests = [
        manifest for manifest in build(overlay) if (manifest["apiVersion"] not in NATIVE) == is_custom
    ]
    assert manifests
    for manifest in manifests:
        assert problems(manifest) == [], manifest["kind"]


@pytest.mark.parametrize("components", COMBINATIONS, ids="-".join)
def test_components_go_together(components: list[str], tmp_path: Path) -> None:
    manifests = compose(components, tmp_path)
    kinds = {manifest["kind"] for manifest in manifests}
    job = components[-1:] in (["pretrain"], ["sweep"])
    assert ("RayJob" in kinds, "RayCluster" in kinds) == (job, not job)
    assert ("PersistentVolumeClaim" in kinds) == ("shared-volume" in components)
    for manifest in manifests:
        if manifest["apiVersion"] not in NATIVE:  # the others are the same as in the overlays
            assert problems(manifest) == [], manifest["kind"]


@pytest.mark.parametrize(
    ("overlay", "kind", "path", "value"),
    [
        ("pretrain-cpu", "RayJob", "spec.backofLimit", 3),
        ("pretrain-cpu", "RayJob", "spec.backoffLimit", "three"),
        ("pretrain-cpu", "RayJob", "spec.rayClusterSpec.authOptions.mode", "tokens"),
        ("pretrain-cpu", "RayJob", "spec.rayClusterSpec.headGroupSpec.template.spec.tolerance", []),
        ("cluster-cpu", "RayCluster", "spec.headGroupSpec.rayStartParams.num-cpus", 0),
        ("cluster-cpu", "RayCluster", "spec.workerGroups", []),
        ("cluster-cpu", "NetworkPolicy", "spec.ingres", []),
        ("cluster-cpu", "ServiceAccount", "automountServiceAccountToken", "no"),
        ("cluster", "FlinkDeployment", "spec.flinkVersion", "v1_99"),
        ("cluster", "FlinkDeployment", "spec.taskManager.replica", 3),
        ("cluster", "FlinkDeployment", "spec.flinkConfiguration.slots", 1),
        ("preprocess-spot", "Job", "spec.template.spec.restartPolice", "Never"),
        ("preprocess-spot", "Job", "spec.backoffLimit", "three"),
    ],
)
def test_mistakes_are_found(overlay: str, kind: str, path: str, value: object) -> None:
    (folder,) = [found for found in OVERLAYS if found.name == overlay]
    (manifest,) = [found for found in build(folder) if found["kind"] == kind]
    wrong: Manifest = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    inner = wrong
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    assert problems(manifest) == []
    assert problems(wrong) != []


@each_overlay
def test_pods_have_no_rights_that_they_do_not_need(overlay: Path) -> None:
    found = [pod for manifest in build(overlay) for pod in pods(manifest)]
    assert found
    for pod in found:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, container["name"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, container["name"]


@each_overlay
def test_only_the_pods_themselves_and_the_operator_reach_them(overlay: Path) -> None:
    manifests = build(overlay)
    (policy,) = [manifest["spec"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
    wanted = policy["podSelector"]["matchLabels"]
    for pod in (pod for manifest in manifests for pod in pods(manifest)):
        assert wanted.items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    themselves, operator = policy["ingress"]
    assert themselves == {"from": [{"podSelector": {"matchLabels": wanted}}]}
    assert operator["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/name"].endswith("-operator")
    assert [port["port"] for port in operator["ports"]] in ([8265], [8081])
    assert not {manifest["kind"] for manifest in manifests} & {"Ingress", "Service", "Secret"}


@each_overlay
def test_no_secret_is_written_down(overlay: Path) -> None:
    def keys(value: object) -> list[str]:
        if isinstance(value, dict):
            named = [str(value["name"])] if {"name", "value"} <= value.keys() else []  # of the environment
            return [*value, *named, *(found for inner in value.values() for found in keys(inner))]
        return [found for inner in value for found in keys(inner)] if isinstance(value, list) else []

    said = [key for manifest in build(overlay) for key in keys(manifest)]
    suspect = {key for key in said if _SECRET.search(key.replace("TOKENFREE", "")) and key not in _ALLOWED}
    assert not suspect


def test_the_docs_say_of_each_profile_what_was_executed() -> None:
    infra, told = REPOSITORY / "infra", (REPOSITORY / "docs" / "tested.md").read_text()
    files = [*infra.glob("beam/*.yaml"), *infra.glob("ray/*.yaml"), *infra.glob("images/*.Dockerfile")]
    names = [f"{path.parent.name}/{path.name}" for path in files]
    names += [overlay.name for overlay in OVERLAYS]
    assert [name for name in names if f"{name}`" not in told] == []
