"""An API server of Kubernetes on this machine, with its etcd: it keeps objects, and nothing runs them."""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tools.engines.processes import EngineProcess, free_ports
from tools.kubernetes import fetch

START_SECONDS = 120
_TOKEN = "of-the-test"


class ApiServer:
    """What `kubectl` says to it.

    Attributes:
        config: the file by which clients find it.
    """

    def __init__(self, kubectl: str, config: Path) -> None:
        self._kubectl, self.config = kubectl, config

    def run(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """`kubectl WORDS`, whatever becomes of it."""
        command = [self._kubectl, f"--kubeconfig={self.config}", *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)

    def __call__(self, *words: str, given: str | None = None) -> str:
        """What `kubectl WORDS` prints; it must succeed."""
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get WORDS` as JSON."""
        return json.loads(self("get", "-o", "json", *words))


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Started for a `with` block, with the definitions of the custom resources."""
    etcd, server, kubectl = programs("etcd", "kube-apiserver", "kubectl")
    definitions = fetch.definitions()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "accounts.key").write_bytes(private)
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    store, peer, port = free_ports(3)
    store_options = [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{store}",
        f"--advertise-client-urls=http://127.0.0.1:{store}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]
    server_options = [
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_config(port)))
    with contextlib.ExitStack() as stack:
        for name, command in (("etcd", [etcd, *store_options]), ("api", [server, *server_options])):
            process = EngineProcess(name, command, folder)
            stack.callback(process.signal)
        client = ApiServer(kubectl, config)
        await_true(lambda: client.run("get", "--raw", "/readyz").returncode == 0, folder / "api.log")
        for path in definitions:
            # They are too large for the annotation that a usual `apply` leaves.
            client("apply", "--server-side", "-f", str(path))
        client("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield client


def _config(port: int) -> dict[str, Any]:
    # Its certificate is its own.
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def await_true(is_so: Callable[[], bool], log: Path, seconds: float = START_SECONDS) -> None:
    """Wait until it is; else the test fails with the end of a log."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.3)


def programs(*names: str) -> list[str]:
    """Programs that `make test-kubernetes` built; where one is not here, the test is skipped."""
    missing = [name for name in names if fetch.program(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here; make test-kubernetes builds them")
    return [str(fetch.program(name)) for name in names]
