"""Hosts that are network namespaces of this machine, each with an address, a home, processes and an SSH server.

The processes of a host see only each other, so that `ray stop` on one ends nothing elsewhere. Hosts share the
disk, of which one folder is mounted on each as the file system that all of them have.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.namespaces import Namespaces, run

SHARED = "/mnt/shared"
_OWN_ROOT = """
mount --bind {folder}/passwd_{name} /etc/passwd && mount -t tmpfs tmpfs /mnt && mkdir {shared} &&
mount --bind {folder}/shared {shared} && mkdir -p /tmp/ray && mount --bind {home}/ray /tmp/ray &&
mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"
"""
_SSHD = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
"""


class Hosts(Namespaces):
    """Hosts 1, 2, ... with the addresses 10.98.0.1, 10.98.0.2, ... on one network.

    Args:
        folder: for homes, keys and logs; `shared` in it is what all hosts have mounted.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("tc", "10.98.0")
        self.folder = folder
        self._servers: list[subprocess.Popen[bytes]] = []
        (folder / "shared").mkdir()
        for name in ("key", "host_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))

    def add(self, number: int) -> None:
        """A host that is on the network, with a home."""
        super().add(number)
        home = self.home(number)
        (home / "ray").mkdir(parents=True)
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        lines = [f'export PATH="{programs}" PYTHONPATH="{REPOSITORY}" RAY_DISABLE_IMPORT_WARNING=1']
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            lines.append(f'export LD_LIBRARY_PATH="{libraries}"')
        (home / ".bashrc").write_text("\n".join(lines) + "\n")
        (self.folder / f"passwd_{self.name(number)}").write_text(
            f"root:x:0:0:root:{home}:/bin/bash\nsshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
        )

    def home(self, number: int) -> Path:
        return self.folder / f"home_{number}"

    def serve_ssh(self, number: int) -> None:
        """Start its SSH server, and wait until it takes connections."""
        config = self.folder / f"sshd_{number}"
        config.write_text(_SSHD.format(address=self.address(number), folder=self.folder))
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        apart = ["unshare", "-pfm", "--kill-child", "--mount-proc"]
        command = self.inside(number, [program, "-D", "-e", "-f", str(config)], apart=apart)
        with (self.folder / f"sshd_{number}.txt").open("wb") as log:
            self._servers.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        until = time.monotonic() + 20
        while "Server listening" not in (said := (self.folder / f"sshd_{number}.txt").read_text()):
            assert time.monotonic() < until, said
            time.sleep(0.1)

    def inside(self, number: int, command: list[str], *, apart: list[str] | None = None) -> list[str]:
        """`command` as it runs on a host, with the files of that host."""
        own = _OWN_ROOT.format(
            folder=self.folder, name=self.name(number), home=self.home(number), shared=SHARED
        )
        return ["ip", "netns", "exec", self.name(number), *(apart or []), "sh", "-c", own, "sh", *command]

    def environment(self, number: int) -> dict[str, str]:
        """Of a command that is run on a host."""
        left_out = (
            "RAY_ADDRESS",
            "RAY_API_SERVER_ADDRESS",
            "RAY_AUTH_MODE",
            "RAY_AUTH_TOKEN",
            "RAY_AUTH_TOKEN_PATH",
        )
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        home = self.home(number)
        return {
            **kept,
            "HOME": str(home),
            "PYTHONPATH": str(REPOSITORY),
            "TOKENFREE_CACHE": str(home / "cache"),
        }

    def close(self) -> None:
        """End all processes of the hosts, and the network."""
        for server in self._servers:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        super().close()
