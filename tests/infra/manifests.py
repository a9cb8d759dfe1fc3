"""The kustomize trees of infra/, built by kustomize itself, and what is in them."""

import functools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tools.kubernetes import fetch

KUBERAY = REPOSITORY / "infra" / "kuberay"
FLINK = REPOSITORY / "infra" / "beam" / "flink-kubernetes"
OVERLAYS = [
    path.parent for tree in (KUBERAY, FLINK) for path in sorted(tree.glob("overlays/*/kustomization.yaml"))
]
GPUS = ("l4", "a100", "h100")
NATIVE = ("v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1")  # what is Kubernetes' own
Manifest = dict[str, Any]


def named(overlay: Path) -> str:
    """What a test is called by."""
    return f"{overlay.parents[1].name}-{overlay.name}"


def build(folder: Path) -> list[Manifest]:
    """What kustomize makes of a folder; where there is no kustomize, the test is skipped."""
    return list(yaml.safe_load_all(_build(folder)))


def compose(components: Sequence[str], folder: Path) -> list[Manifest]:
    """What the base of KubeRay becomes with components, in this order."""
    # kustomize takes no absolute paths.
    there = Path(*[".."] * (len(folder.resolve().parts) - 1), *KUBERAY.parts[1:])
    parts = [str(there / "components" / part) for part in components]
    mapping = {"resources": [str(there / "base")], "components": parts}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(mapping))
    return build(folder)


def one(manifests: Sequence[Manifest], kind: str) -> Manifest:
    """The only one of that kind."""
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def pods(manifest: Manifest) -> Iterator[Manifest]:
    """All templates of pods in it. Of Flink's, whose templates are merged, as its operator merges them."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "FlinkDeployment":
        for role in ("jobManager", "taskManager"):
            yield _merged(spec["podTemplate"], spec[role].get("podTemplate", {}))
    else:
        yield from _templates(spec)


def ray_cluster(manifest: Manifest) -> Manifest:
    """What a RayCluster or a RayJob says of the cluster."""
    return manifest["spec"] if manifest["kind"] == "RayCluster" else manifest["spec"]["rayClusterSpec"]


def schemas() -> dict[tuple[str, str], Manifest]:
    """Of each version and kind of a custom resource, its schema; where they cannot be had, the test is skipped."""
    found = _read_schemas()
    return (
        found
        if isinstance(found, dict)
        else pytest.skip(f"the custom resources' definitions are not here: {found}")
    )


@functools.cache
def _read_schemas() -> dict[tuple[str, str], Manifest] | str:
    """They, or why they are not here: what cannot be fetched is tried once."""
    try:
        paths = fetch.definitions()
    except fetch.NotFetched as error:
        return str(error)
    found = {}
    for path in paths:
        spec = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}  # which all resources have
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def problems(manifest: Manifest) -> list[str]:
    """What the schema of its kind says against it."""
    if manifest["apiVersion"] in NATIVE:
        validate = pytest.importorskip(
            "kubernetes_validate", reason="the package kubernetes-validate is not installed"
        )
        try:
            validate.validate(manifest, "1.34", strict=True)
        except validate.ValidationError as error:
            return [str(error)]
        return []
    from jsonschema import Draft7Validator

    schema = schemas()[manifest["apiVersion"], manifest["kind"]]
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(manifest)]


@functools.cache
def _build(folder: Path) -> str:
    done = subprocess.run([*_kustomize(), str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _kustomize() -> list[str]:
    if (own := fetch.program("kustomize")) is not None:
        return [str(own), "build"]
    if (kubectl := fetch.program("kubectl")) is not None:
        return [str(kubectl), "kustomize"]
    pytest.skip("neither kustomize nor kubectl is here; make test-kubernetes builds them")


def _templates(value: Any) -> Iterator[Manifest]:
    if isinstance(value, Mapping):
        if "containers" in value.get("spec", {}):
            yield json.loads(json.dumps(value))
        else:
            for inner in value.values():
                yield from _templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _templates(inner)


def _merged(below: Manifest, above: Manifest) -> Manifest:
    spec, more = below["spec"], above.get("spec", {})
    containers = [*spec.get("containers", []), *more.get("containers", [])]
    return {"metadata": below.get("metadata", {}), "spec": {**spec, **more, "containers": containers}}


def _strict(schema: Any) -> Any:
    """A schema that refuses what it does not name, as the API server does when it is asked to be strict."""
    if isinstance(schema, list):
        return [_strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(inner) for key, inner in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        strict |= {"type": ["integer", "string"]}
        strict.pop("anyOf", None)
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if (
        is_object
        and "additionalProperties" not in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        strict["additionalProperties"] = False
    return strict
