"""Access to Ray: which cluster is meant, a token that nobody else reads, and when it is sent."""

import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY, SOURCE
from tokenfree.core import ray_access
from tokenfree.core.errors import UserError

NOBODY = 65534
SESSION = """
import ray
from tokenfree.train.ray.cluster import ray_session
with ray_session(1):
    context = ray.get_runtime_context()
    print(context.gcs_address, context.get_temp_dir(), flush=True)
    input()
"""


@pytest.mark.parametrize(("installed", "is_tested"), [("2.60.0", True), ("2.60.3", True), ("2.61.0", False)])
def test_untested_minor_versions_are_noted(
    installed: str, is_tested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_access, "version", lambda package: installed)
    note = "" if is_tested else (
        "Ray 2.61.0 was not tested with tokenfree. If it fails: pip install 'ray[default,train,tune]==2.60.*'"
    )  # fmt: skip
    assert ray_access.untested() == note


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the token of a user who has set nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".ray" / "auth_token"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("value", "expected"), [("", None), (" ", None), ("local", None), ("auto", "auto"), ("a:1", "a:1")]
)
def test_named_cluster_ignores_empty_and_local(value: str, expected: str | None) -> None:
    assert ray_access.named_cluster({"RAY_ADDRESS": value}) == expected
    assert ray_access.named_cluster({}) is None


def test_named_cluster_is_the_only_reader_of_the_address() -> None:
    reads = re.compile(r'environ.*(RAY_ADDRESS|ray_access\.ADDRESS)|"RAY_ADDRESS" (not )?in ')
    files = [path for path in SOURCE.rglob("*.py") if reads.search(path.read_text(encoding="utf-8"))]
    assert files == []


def test_require_token_writes_it_once(token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token.parent.mkdir(mode=0o755)
    ray_access.require_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert (mode_of(token), mode_of(token.parent)) == (0o600, 0o700)
    content = token.read_text()
    assert len(content) == 64
    ray_access.require_token()
    assert token.read_text() == content
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_write_token_replaces_one_that_others_can_open(
    mode: int, token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token.parent.mkdir()
    token.write_text("old")
    token.chmod(mode)
    with ThreadPoolExecutor(8) as pool:  # commands that start at the same time
        tokens = set(pool.map(lambda _: (ray_access.write_token(), token.read_text())[1], range(8)))
    assert len(tokens) == 1
    assert "old" not in tokens
    assert (mode_of(token), mode_of(token.parent)) == (0o600, 0o700)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"tokenfree: warning: others could read {token}, so it holds a new token. Restart Ray"
    )


@pytest.mark.parametrize("has_target", [True, False])
def test_write_token_writes_through_no_link(has_target: bool, token: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    if has_target:
        target.write_text("old")
        target.chmod(0o644)
    token.parent.mkdir()
    token.symlink_to(target)
    ray_access.write_token()
    assert not token.is_symlink()
    assert mode_of(token) == 0o600
    assert target.exists() == has_target


def test_write_token_leaves_the_folder_of_another_path(
    token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "secret"))
    ray_access.write_token()
    assert (mode_of(tmp_path / "secret"), mode_of(tmp_path)) == (0o600, 0o755)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/proc/none/secret")
    with pytest.raises(UserError, match=r"^/proc/none/secret: Ray's token cannot be written: "):
        ray_access.write_token()


@pytest.mark.parametrize("setting", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "of the user"}])
def test_require_token_keeps_what_the_user_has_set(
    setting: dict[str, str], token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    ray_access.require_token()
    assert setting.items() <= os.environ.items()
    assert not token.exists()


def test_require_token_refuses_a_mode_that_ray_takes_for_disabled(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    ray_access.require_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "tokn")
    with pytest.raises(UserError, match="RAY_AUTH_MODE=tokn: should be token or disabled"):
        ray_access.require_token()


def test_send_token_needs_one(token: Path) -> None:
    ray_access.send_token()
    assert "RAY_AUTH_MODE" not in os.environ
    token.parent.mkdir()
    token.write_text("x")
    ray_access.send_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_send_token_works_after_ray_is_imported(token: Path) -> None:
    program = (
        "import ray; from tokenfree.core.ray_access import send_token, write_token; write_token(); send_token(); "
        "from ray._private.authentication import http_token_authentication as http; "
        "print(http.get_auth_headers_if_auth_enabled({}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY)
    assert f"Bearer {token.read_text()}" in done.stdout


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_reach_recognizes_no_head_of_ray(
    answer: bytes | None, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_access, "_REACH_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        reached = pool.submit(ray_access.reach, address)
        with server.accept()[0] as connection:
            if answer is not None:
                connection.sendall(answer or ray_access._SETTINGS_FRAME[1:])
            else:
                assert not reached.result(5)
        assert not reached.result(5)
    assert not ray_access.reach(address)
    assert not ray_access.reach(f"http://{address}")
    assert ray_access.reach("auto")


def test_reach_needs_the_address_to_which_ray_will_connect(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:  # as a local cluster
        reached = pool.submit(ray_access.reach, f"127.0.0.1:{server.getsockname()[1]}")
        with server.accept()[0] as connection:
            connection.sendall(ray_access._SETTINGS_FRAME)
            assert not reached.result(30)


def attack(results: Any, address: str, paths: list[str]) -> None:
    """Send what another user of this machine gets at: content of files and folders, and answers of Ray."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for path in paths:
        with contextlib.suppress(PermissionError):
            results.put(os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes())
    if not ray_access._is_refused(address):
        results.put("no token")
    os.environ["RAY_AUTH_TOKEN"] = "0" * 64
    ray_access.require_token()
    if not ray_access._is_refused(address):
        results.put("any token")
    results.put("end")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_another_user_reaches_nothing_of_a_local_run(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray  # noqa: F401, so that the other user needs no access to it

    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o755)
        token = Path(home) / ".ray" / "auth_token"
        token.parent.mkdir()
        token.write_text("0" * 64)
        monkeypatch.setenv("HOME", home)
        command = [sys.executable, "-c", SESSION]
        with subprocess.Popen(command, cwd=REPOSITORY, stdin=-1, stdout=-1, text=True) as victim:
            assert victim.stdin is not None
            assert victim.stdout is not None
            address, folder = victim.stdout.readline().split()
            paths = [str(token), str(token.parent), folder, f"{folder}/session_latest/sockets"]
            results = get_context("fork").Queue()
            other = get_context("fork").Process(target=attack, args=(results, address, paths), daemon=True)
            other.start()
            other.join(60)
            assert results.get(timeout=5) == "end"
            ray_access.require_token()
            assert not ray_access._is_refused(address)
            victim.stdin.write("\n")
        assert not Path(folder).exists()


def test_whether_something_listens_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert ray_access.answers(address, seconds=1.0) is True
    assert ray_access.answers(address, seconds=1.0) is False
    assert ray_access.answers(("name.invalid", 1), seconds=1.0) is None


def test_addresses_of_a_host_and_a_port() -> None:
    assert ray_access.host_and_port("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert ray_access.host_and_port("[::1]:6379") == ("::1", 6379)
    assert [ray_access.host_and_port(text) for text in ("auto", ":1", "ray://head:port")] == [None] * 3
