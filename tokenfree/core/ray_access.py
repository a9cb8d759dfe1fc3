"""Access to Ray: the cluster that RAY_ADDRESS names, the token that Ray requires, and private session folders.

Only this module reads RAY_ADDRESS. It imports Ray only to connect, because the import takes seconds.
"""

import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import lock

ADDRESS, MODE = "RAY_ADDRESS", "RAY_AUTH_MODE"
# Minor versions of Ray with which all tests passed, the newest last.
TESTED = ("2.60",)
_REACH_SECONDS = 5.0  # timeout for the head of a cluster to answer
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # empty; the type is the fourth byte
# With which every client of gRPC begins.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS_FRAME


_INSTALL = f"pip install 'ray[default,train,tune]=={TESTED[-1]}.*'"
# Messages of Ray about losses, which tokenfree reports itself, as a regular expression.
RAY_LOSSES = "A worker died or was killed|Raylet is terminated|has been marked dead"

Address = tuple[str, int]


def host_and_port(text: str) -> Address | None:
    """Parse HOST:PORT. Return None for other addresses, such as `auto`."""
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


def answers(address: Address, *, seconds: float) -> bool | None:
    """Return True if something listens at an address, False if not, or None if it is busy or its machine is gone."""
    try:
        socket.create_connection(address, timeout=seconds).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True


def wrong_version(problem: str) -> JobError:
    return JobError(
        f"tokenfree does not work with Ray {version('ray')}: {problem}. Install a tested one: {_INSTALL}"
    )


def untested() -> str:
    """Return a note if this minor version of Ray is not one of `TESTED`, else an empty text."""
    note = f"Ray {version('ray')} was not tested with tokenfree. If it fails: {_INSTALL}"
    return "" if version("ray").rpartition(".")[0] in TESTED else note


def named_cluster(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the value of RAY_ADDRESS, or None if it is unset, empty or `local`: commands then start their own Ray."""
    address = environment.get(ADDRESS, "").strip()
    return None if address in ("", "local") else address


def reach(address: str) -> bool:
    """Return False if no head of a Ray cluster answers at an address.

    Make Ray send the token if the cluster needs it. Ray itself would wait for minutes, and its workers fail
    if the token is sent to a cluster that requires none. Raises UserError if the cluster does not accept the
    token of this machine.
    """
    place = host_and_port(address)
    # Such as `auto`, which Ray looks up.
    if place is None:
        return True
    if not _speaks_grpc(place):
        return False
    import ray

    host, port = place
    # To which Ray will connect.
    if host in _LOOPBACK and not _speaks_grpc((ray.util.get_node_ip_address(), port)):
        return False
    # Ray would abort this process.
    if os.environ.get(MODE) and _mode() == "token" and not _has_token():
        raise wrong_token(address)
    if _is_refused(address):
        send_token()
        if not _has_token() or _is_refused(address):
            raise wrong_token(address)
    return True


def _speaks_grpc(place: Address) -> bool:
    try:
        with socket.create_connection(place, timeout=_REACH_SECONDS) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(len(_SETTINGS_FRAME))
            return answer[3:4] == _SETTINGS_FRAME[3:4] or os.environ.get("RAY_USE_TLS") == "1"
    except OSError:
        return False


def _is_refused(address: str) -> bool:
    import ray._raylet
    from ray.exceptions import AuthenticationError, RpcError

    # The head checks the token before the id of the cluster, which is a wrong one.
    raylet: Any = ray._raylet
    client = raylet.GcsClient(address, cluster_id=raylet.ClusterID.from_random().hex())
    try:
        client.internal_kv_get(b"x", None, timeout=_REACH_SECONDS)
    except AuthenticationError as error:
        return "InvalidAuthToken" in str(error)
    except RpcError:
        return False
    return False


def wrong_token(address: str) -> UserError:
    return UserError(
        f"{address} requires another token than the one of this machine ({token_path()}); copy that of the cluster "
        "there, or name its file in RAY_AUTH_TOKEN_PATH"
    )


def token_path() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")


def send_token() -> None:
    """Make Ray in this process and its children send the token if there is one.

    Jobs may send it to any cluster.
    """
    if _has_token():
        _set_mode(_mode())


def require_token() -> None:
    """Make clusters that this process starts require a token, unless RAY_AUTH_MODE is `disabled`.

    Write it first.
    """
    write_token()
    _set_mode(_mode())


def write_token() -> None:
    """Write a token to where Ray looks for it, unless there is one that only this user can read.

    Ray itself would write it for everyone to read. Raises UserError if the file cannot be written.
    """
    if _mode() == "disabled" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = token_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder of another path may hold other files.
        if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
            path.parent.chmod(0o700)
        if _is_private(path):
            return
        with lock(path.with_name(f"{path.name}.lock"), seconds=30):
            # Another command has written it in the meantime.
            if _is_private(path):
                return
            was_exposed = path.exists()
            descriptor, temporary = tempfile.mkstemp(dir=path.parent)
            with open(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
            os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path}: Ray's token cannot be written: {error.strerror}. Set HOME or RAY_AUTH_TOKEN_PATH so that it can"
        ) from error
    if was_exposed:
        print(
            f"tokenfree: warning: others could read {path}, so it holds a new token. Restart Ray clusters that were "
            "started with the old one",
            file=sys.stderr,
        )


def _is_private(path: Path) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.geteuid()


def _has_token() -> bool:
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or token_path().exists()


def _mode() -> str:
    """Return RAY_AUTH_MODE, by default `token`.

    Raises UserError if it is invalid, which Ray takes for `disabled`.
    """
    mode = (os.environ.get(MODE) or "token").lower()
    if mode not in ("token", "disabled"):
        raise UserError(f"{MODE}={mode}: should be token or disabled")
    return mode


def _set_mode(mode: str) -> None:
    os.environ[MODE] = mode
    raylet = sys.modules.get("ray._raylet")
    if raylet is not None:
        # Ray has read the variable when it was imported.
        raylet.Config.initialize("")


def session_folder() -> str:
    """Create a folder for the files of a Ray session, which Ray itself lets everyone read and write."""
    place = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    os.makedirs(place, exist_ok=True)
    # Only this user may enter it; short, for the paths of sockets.
    return tempfile.mkdtemp(prefix="tf-", dir=place)
