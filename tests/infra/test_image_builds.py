"""The images, built by buildah from the Dockerfiles as they are, on a Debian of debootstrap in place of the base images
that a registry has. Run by `make test-images`: it fetches gigabytes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY
from tools.kubernetes import fetch

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.timeout(7200)]
IMAGES = REPOSITORY / "infra" / "images"
BOOT = "github.com/apache/beam/sdks/v2/python/container"  # of Beam's harness
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Packages of Debian that the locks leave out.
FROM_DEBIAN = {"pip==23.0.1", "setuptools==66.1.1", "wheel==0.38.4"}
# What Debian's image without documentation leaves out.
EXCLUDED = "path-exclude /usr/share/man/*\npath-exclude /usr/share/doc/*\n"
SOURCES = ("tokenfree", "infra")


class Builder:
    """buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._options = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]

    def __call__(self, *words: str) -> str:
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        command = ["buildah", *self._options, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout.strip()

    def commit(self, files: dict[Path, str], image: str, *configuration: str) -> None:
        """An image of files and folders, by the places where they go."""
        container = self("from", "scratch")
        for path, place in files.items():
            self("copy", "--quiet", container, str(path), place)
        self("config", *configuration, container)
        self("commit", "--quiet", "--rm", container, image)

    def build(self, dockerfile: str, target: str | None, context: Path) -> str:
        """Build one of ours, its base images without their digests, which those here do not have."""
        text = re.sub(r"@sha256:[0-9a-f]{64}", "", (IMAGES / dockerfile).read_text())
        (context / dockerfile).write_text(text)
        image = f"localhost/{target or dockerfile.split('.')[0]}"
        options = ["--layers", "--pull-never", "--tag", image, *(["--target", target] if target else [])]
        self("bud", *options, "--file", str(context / dockerfile), str(context))
        return image

    def run(self, image: str, *words: str) -> str:
        """What a program prints in a container of the image, as its user."""
        container = self("from", "--pull-never", image)
        try:
            return self("run", container, "--", *words)
        finally:
            self("rm", container)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """With images of the names that the Dockerfiles begin with."""
    missing = [name for name in ("buildah", "debootstrap", "go") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"needs root and {', '.join(missing) or 'nothing else'}: apt-get install buildah debootstrap"
        )
    folder = tmp_path_factory.mktemp("buildah")
    builder = Builder(folder)
    try:
        make_bases(builder, folder)
        yield builder
    finally:  # gigabytes, with what is mounted among them
        builder("rm", "--all")
        builder("rmi", "--all", "--force")


def make_bases(builder: Builder, folder: Path) -> None:
    """Make the images that ours begin with."""
    root = debian()
    python = re.findall(r"^FROM (python:\S+)@", (IMAGES / "train.Dockerfile").read_text(), re.M)[0]
    extra = {CERTIFICATES: "/etc/pip-certificates.crt"} if CERTIFICATES.exists() else {}
    variables = [
        "PATH=/usr/local/bin:/usr/bin:/bin:/sbin",
        *(["PIP_CERT=/etc/pip-certificates.crt"] if extra else []),
    ]
    configuration = [word for variable in variables for word in ("--env", variable)]
    builder.commit({root: "/", **extra}, f"docker.io/library/{python}", *configuration)
    harness = re.findall(r"^FROM (apache/\S+)", (IMAGES / "beam.Dockerfile").read_text(), re.M)[0]
    version = harness.rpartition(":")[2]
    subprocess.run(
        ["go", "install", f"{BOOT}@v{version}"], check=True, env={**os.environ, "GOBIN": str(folder)}
    )
    builder.commit({folder / "container": "/opt/apache/beam/boot"}, f"docker.io/{harness}")


def debian() -> Path:
    """The root of a Debian 12 with Python 3.11, as small as Debian's own image is; kept in the cache."""
    root = fetch.home() / "debian"
    if root.exists():
        return root
    new = fetch.home() / "debian.new"
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    packages = "--include=ca-certificates,python3,python3-pip"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", str(new)], check=True, capture_output=True
    )
    # The real image has a Python of its own.
    (new / "usr" / "lib" / "python3.11" / "EXTERNALLY-MANAGED").unlink()
    (new / "usr" / "local" / "bin" / "python").symlink_to("/usr/bin/python3")
    (new / "etc" / "dpkg" / "dpkg.cfg.d" / "docker").write_text(EXCLUDED)
    shutil.rmtree(new / "usr" / "share" / "man")
    (new / "usr" / "share" / "man").mkdir()
    return new.rename(root)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfiles copy from, with the wheel."""
    folder = tmp_path_factory.mktemp("context")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in SOURCES:
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True)
    options = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist")]
    subprocess.run([sys.executable, "-m", "pip", *options, str(source)], check=True)
    shutil.rmtree(source)
    shutil.copytree(REPOSITORY / "infra", folder / "infra")
    return folder


@pytest.mark.parametrize("target", ["worker", "submit"])
def test_beam(target: str, builder: Builder, context: Path) -> None:
    image = builder.build("beam.Dockerfile", target, context)
    has_versions_of_the_lock(builder, image, IMAGES / "beam.lock")
    is_not_root(builder, image)
    help_text = builder.run(image, "python", "-m", "tokenfree.pipelines.worker_pool", "--help")
    assert "--port" in help_text
    assert builder.run(image, "test", "-x", "/opt/apache/beam/boot") == ""
    if target == "submit":
        assert 'version "17' in builder.run(image, "sh", "-c", "java -version 2>&1")
        assert builder.run(image, "tokenfree", "--version").startswith("tokenfree")


def test_training(builder: Builder, context: Path) -> None:
    image = builder.build("train.Dockerfile", None, context)
    has_versions_of_the_lock(builder, image, IMAGES / "train.lock")
    is_not_root(builder, image)
    assert builder.run(image, "tokenfree", "--version").startswith("tokenfree")
    for program in ("ray", "ssh", "rsync"):
        assert builder.run(image, "sh", "-c", f"command -v {program}")


def has_versions_of_the_lock(builder: Builder, image: str, lock: Path) -> None:
    pins = re.findall(r"^([a-z0-9-]+==[^ ]+)(?: ; (.*) )?", lock.read_text(), re.M)
    wanted = {
        pin
        for pin, marker in pins
        if not marker or Marker(marker).evaluate({"python_full_version": "3.11.2"})
    }
    frozen = re.findall(r"^([^=@ ]+)==(.+)$", builder.run(image, "pip", "freeze", "--all"), re.M)
    found = {f"{canonicalize_name(name)}=={version}" for name, version in frozen} - FROM_DEBIAN
    found = {pin for pin in found if not pin.startswith(("nvidia-", "cuda-", "triton="))}
    assert found ^ wanted == set()


def is_not_root(builder: Builder, image: str) -> None:
    assert builder.run(image, "id", "-u") == "10001"
    assert json.loads(builder("inspect", "--type", "image", image))["OCIv1"]["config"]["User"] == "10001"
