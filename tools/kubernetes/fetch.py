"""Fetch what shows that the manifests of infra/ are right into the cache: definitions of the custom resources,
kustomize, an API server of Kubernetes with its etcd and kubectl, and KubeRay's operator.

    python -m tools.kubernetes.fetch                 # all that is missing
    python -m tools.kubernetes.fetch definitions     # in seconds; building the programs takes a quarter of an hour

Needs Go, and Maven for the definitions of Flink. All lies in `kubernetes/` of the cache (TOKENFREE_CACHE, by
default ~/.cache/tokenfree). Go checks what the programs are built from against the go.sum of
tools/kubernetes/programs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from tokenfree.core.files import cache_folder, hash_file

KUBERAY, KUBERAY_VERSION = "github.com/ray-project/kuberay/ray-operator", "v1.6.2"
KUBERAY_SUM = "h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0="
FLINK = "org.apache.flink:flink-kubernetes-operator-api:1.10.0"
FLINK_SHA256 = "b1f44814e17514fa8395c61b329a3ee9087123a5bda5b21fe1a495d5182c30b6"
SOURCES = Path(__file__).parent / "programs"  # Go modules that name what is built, with its sums
PROGRAMS = {  # with the module in there, and the package
    "kustomize": ("kubernetes", "sigs.k8s.io/kustomize/kustomize/v5"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "etcd": ("kubernetes", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "ray-operator": ("kuberay", KUBERAY),
}
SECONDS = 120  # for a download


class NotFetched(Exception):
    """Something cannot be had here; the message says what and why."""


def home() -> Path:
    """The folder of all that is fetched."""
    return cache_folder() / "kubernetes"


def program(name: str) -> Path | None:
    """A program that was built, or else the one on the PATH; None where there is neither."""
    built = home() / name
    found = str(built) if built.exists() else shutil.which(name)
    return Path(found) if found else None


def definitions() -> list[Path]:
    """The custom resources' definitions, fetched where they are not there.

    Raises:
        NotFetched: they cannot be fetched.
    """
    ray, flink = home() / "definitions" / KUBERAY_VERSION, home() / "definitions" / FLINK.replace(":", "_")
    if not ray.exists():
        _put(_ray_definitions(), ray)
    if not flink.exists():
        _put(_flink_definitions(), flink)
    return sorted([*ray.glob("*.yaml"), *flink.glob("*.yaml")])


def build() -> None:
    """Build the programs that are not there.

    Raises:
        NotFetched: one cannot be built.
    """
    definitions()
    home().mkdir(parents=True, exist_ok=True)
    for name, (module, package) in PROGRAMS.items():
        if not (home() / name).exists():
            new = home() / f"{name}.new"
            command = ["go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", str(new), package]
            _run(command, None, cwd=SOURCES / module)
            new.rename(home() / name)
            print(f"{name}: built", flush=True)


def main() -> None:
    wanted = sys.argv[1:] or list(FETCHERS)
    for name in wanted:
        if name not in FETCHERS:
            sys.exit(f"there is no {name!r}; give of {', '.join(FETCHERS)}")
        try:
            FETCHERS[name]()
        except NotFetched as error:
            sys.exit(str(error))
        print(f"{name}: in {home()}")


FETCHERS: dict[str, Callable[[], object]] = {"definitions": definitions, "programs": build}


def _module() -> Path:
    """KubeRay's module, in Go's cache of modules."""
    told = json.loads(_run(["go", "mod", "download", "-json", f"{KUBERAY}@{KUBERAY_VERSION}"]))
    if told["Sum"] != KUBERAY_SUM:
        raise NotFetched(f"{KUBERAY}@{KUBERAY_VERSION} is another one than was tried")
    return Path(told["Dir"])


def _ray_definitions() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (_module() / "config" / "crd" / "bases").glob("*.yaml")}


def _flink_definitions() -> dict[str, bytes]:
    target = home() / "flink.new"
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    _run(["mvn", "--quiet", "--batch-mode", copy, f"-Dartifact={FLINK}", f"-DoutputDirectory={target}"])
    (jar,) = target.glob("*.jar")
    if hash_file(str(jar)) != FLINK_SHA256:
        raise NotFetched(f"{FLINK} is another one than was tried")
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.endswith("-v1.yml")]
        found = {f"{Path(name).stem}.yaml": archive.read(name) for name in names}
    shutil.rmtree(target)
    return found


def _put(files: dict[str, bytes], target: Path) -> None:
    """All of them or none."""
    new = target.with_name(f"{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, content in files.items():
        (new / name).write_bytes(content)
    new.rename(target)


def _run(command: list[str], seconds: float | None = SECONDS, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=cwd)
    except FileNotFoundError:
        raise NotFetched(f"{command[0]}: not found; install it first") from None
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{' '.join(command)}: no answer in {seconds:.0f} seconds") from None
    if done.returncode:
        raise NotFetched(f"{' '.join(command)}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
