"""The AWS profile against moto's EC2: which machines it asks for, and what would run on them.

The API is moto's, over HTTP; programs named ssh and rsync stand in for those machines, and note what they are
told.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tokenfree.workflows.cluster import profiles

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
REGION = "us-west-2"
SSH = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *"docker inspect"*Running*) echo false ;;
  *"docker inspect"*Env*) echo '["HOME=/root"]' ;;
  *"printenv HOME"*) echo /root ;;
  *"docker"*"command -v"*) echo /usr/bin/docker ;;
esac
"""


@pytest.fixture
def home(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of AWS, whose machines are not there; the server is that of the bucket."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("ssh", "rsync"):
        (programs / name).write_text(SSH.format(log=tmp_path / f"{name}.log"))
        (programs / name).chmod(0o755)
    for name, value in (("HOME", str(tmp_path)), ("PATH", f"{programs}:{os.environ['PATH']}"),
                        ("AWS_DEFAULT_REGION", REGION), ("PYTHONPATH", str(REPOSITORY))):  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def ec2(home: Path) -> Any:
    import boto3

    # Of the test before.
    with contextlib.suppress(boto3.client("iam").exceptions.EntityAlreadyExistsException):
        boto3.client("iam").create_instance_profile(InstanceProfileName="filled")
    return boto3.client("ec2")


@pytest.fixture
def profile(home: Path, ec2: Any) -> Path:
    """The profile, filled in."""
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    text = (
        profiles.find("aws").read_text(encoding="utf-8").replace("<region>", REGION).replace("<ami>", image)
    )
    path = home / "aws.yaml"
    path.write_text(profiles._PLACE.sub("filled", text), encoding="utf-8")
    return path


def machines(ec2: Any) -> list[dict[str, Any]]:
    found = [each for reserved in ec2.describe_instances()["Reservations"] for each in reserved["Instances"]]
    return [each for each in found if each["State"]["Name"] not in ("terminated", "shutting-down")]


def tokenfree(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "tokenfree", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_up_starts_a_head_and_down_leaves_nothing(home: Path, ec2: Any, profile: Path) -> None:
    said = tokenfree("cluster", "up", str(profile), "--yes")
    (head,) = machines(ec2)
    assert head["InstanceType"] == "m6i.xlarge"
    assert "InstanceLifecycle" not in head  # it is no spot machine
    assert head["IamInstanceProfile"]["Arn"].endswith("/filled")
    tags = {tag["Key"]: tag["Value"] for tag in head["Tags"]}
    assert (tags["ray-cluster-name"], tags["ray-node-type"]) == ("tokenfree", "head")
    opened = [(rule.get("FromPort"), [each["CidrIp"] for each in rule["IpRanges"]])
              for group in ec2.describe_security_groups(GroupIds=[each["GroupId"] for each in head["SecurityGroups"]])
              ["SecurityGroups"] for rule in group["IpPermissions"] if rule["IpRanges"]]  # fmt: skip
    # From outside SSH alone is reached: neither dashboard nor Ray's port.
    assert opened == [(22, ["0.0.0.0/0"])]

    run, copied = (home / "ssh.log").read_text(), (home / "rsync.log").read_text()
    starts = [line for line in run.splitlines() if "ray start" in line]
    assert len(starts) == 1
    assert (
        "RAY_AUTH_MODE=token ray start --head --port=6379 --num-cpus=0 --dashboard-host=127.0.0.1"
        in starts[0]
    )
    assert "mountpoint -q /mnt/shared" in run
    assert "tokenfree --version" in run
    assert "ray-wheels" not in run  # Ray installs no Ray of its own choice
    assert ".ray/auth_token" in copied
    token = (home / ".ray" / "auth_token").read_text()
    assert not any(secret in text for secret in (token, "secret") for text in (said, run, copied))

    tokenfree("cluster", "down", str(profile), "--yes")
    assert machines(ec2) == []


def test_workers_are_spot_machines_first(home: Path, ec2: Any, profile: Path) -> None:
    """What the head would ask for, asked for here."""
    from ray.autoscaler._private.commands import _bootstrap_config
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler._private.util import prepare_config

    config = _bootstrap_config(
        prepare_config(dict(profiles.read(str(profile)).mapping)), no_config_cache=True
    )
    provider = _get_node_provider(config["provider"], "tokenfree", use_cache=False)
    types = config["available_node_types"]
    for name in ("gpu-spot", "gpu-on-demand"):
        assert types[name]["resources"] == {"CPU": 8, "memory": types[name]["resources"]["memory"], "GPU": 1,
                                            "accelerator_type:A10G": 1}  # fmt: skip
        provider.create_node(types[name]["node_config"], {"ray-user-node-type": name}, 1)
    asked = {tag["Value"]: each.get("InstanceLifecycle") for each in machines(ec2) for tag in each["Tags"]
             if tag["Key"] == "ray-user-node-type"}  # fmt: skip
    assert asked == {"gpu-spot": "spot", "gpu-on-demand": None}
    assert {each["InstanceType"] for each in machines(ec2)} == {"g5.2xlarge"}
