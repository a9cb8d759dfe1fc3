"""One file over HTTP: whole or not at all, whatever the server does."""

import dataclasses
import hashlib
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess import download as fetch
from tokenfree.preprocess.download import Absent, Client

DATA = random.Random(1).randbytes(600_000)
SHA1 = hashlib.sha1(DATA).hexdigest()
HALF = 250_000


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return Client(backoff=0.001, timeout=5, allow_http=True, notice=lambda text: None)


def get(client: Client, server: Any, path: Path, *, sha1: str = SHA1, size: int | None = len(DATA)) -> list[int]:
    """Fetch `/file`, and return how many bytes each report of progress was about."""
    server.files.setdefault("/file", DATA)
    new: list[int] = []
    client.fetch(f"{server.url}/file", path, size=size, sha1=sha1, progress=lambda done, block: new.append(block))
    assert path.read_bytes() == server.files["/file"]
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]
    return new


def begin(path: Path, data: bytes = DATA) -> None:
    """Leave what a download of `data` leaves that was killed half way."""
    path.with_name(path.name + ".part").write_bytes(data[:HALF])


def test_whole(client: Client, dump_server: Any, tmp_path: Path) -> None:
    assert sum(get(client, dump_server, tmp_path / "file")) == len(DATA)
    assert dump_server.gets("/file") == [(200, len(DATA))]
    assert dump_server.agents == {"tokenfree/0.1.0 (tokenfree download)"}


def test_an_empty_file(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.files["/file"] = b""
    get(client, dump_server, tmp_path / "file", sha1=hashlib.sha1(b"").hexdigest(), size=None)


def test_a_cut_connection_costs_no_byte_twice(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", dump_server.cut(HALF), dump_server.cut(1000))
    get(client, dump_server, tmp_path / "file")
    assert dump_server.gets("/file") == [(200, HALF), (206, 1000), (206, len(DATA) - HALF - 1000)]


def test_a_later_command_asks_for_the_rest_only(client: Client, dump_server: Any, tmp_path: Path) -> None:
    begin(tmp_path / "file")
    assert sum(get(client, dump_server, tmp_path / "file")) == len(DATA) - HALF
    assert dump_server.gets("/file") == [(206, len(DATA) - HALF)]


def test_a_file_that_only_lacked_its_name_is_not_asked_for(client: Client, dump_server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA)
    assert get(client, dump_server, tmp_path / "file") == []
    assert dump_server.gets("/file") == []


@pytest.mark.parametrize("size", [len(DATA), None])
def test_more_than_the_file_is_thrown_away(client: Client, dump_server: Any, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "file.part").write_bytes(DATA + b"more")
    get(client, dump_server, tmp_path / "file", size=size)  # where the size is unknown, the server answers 416


def test_a_server_without_range_sends_all_again(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.ranges = False
    dump_server.fault("/file", dump_server.cut(HALF))
    get(client, dump_server, tmp_path / "file")
    assert dump_server.gets("/file") == [(200, HALF), (200, len(DATA))]


def test_a_server_that_never_gets_further_is_given_up(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.ranges = False
    dump_server.fault("/file", *[dump_server.cut(HALF)] * 50)
    with pytest.raises(JobError, match=r"connection was cut.*same command later"):
        get(client, dump_server, tmp_path / "file")
    assert len(dump_server.gets("/file")) == fetch.ATTEMPTS
    assert (tmp_path / "file.part").stat().st_size == HALF


def test_a_server_that_gets_on_slowly_is_not(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", *[dump_server.cut(20_000)] * 25)
    get(client, dump_server, tmp_path / "file")
    assert len(dump_server.gets("/file")) == 26


def test_a_file_that_changed_is_not_glued_to_its_old_half(client: Client, dump_server: Any, tmp_path: Path) -> None:
    begin(tmp_path / "file", data=b"old" * 200_000)
    with pytest.raises(JobError, match="what came was removed: give the same command again"):
        get(client, dump_server, tmp_path / "file")
    get(client, dump_server, tmp_path / "file")


def test_wrong_bytes_are_removed(client: Client, dump_server: Any, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=rf"file: SHA-1 is {SHA1}, but {'0' * 40} was expected.*--mirror"):
        get(client, dump_server, tmp_path / "file", sha1="0" * 40)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_throttling_passes(client: Client, dump_server: Any, tmp_path: Path, status: int) -> None:
    dump_server.fault("/file", *[dump_server.refuse(status)] * 3)
    get(client, dump_server, tmp_path / "file")
    assert [status for status, _ in dump_server.gets("/file")] == [status] * 3 + [200]


def test_retry_after_is_honoured(
    client: Client, dump_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    dump_server.fault("/file", dump_server.refuse(503, Retry_After="7"))
    get(client, dump_server, tmp_path / "file")
    assert waits == [7.0]


def test_a_server_that_asks_for_an_hour_is_left_alone(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", dump_server.refuse(429, Retry_After="3600"))
    with pytest.raises(JobError, match="asks to wait 3600 s"):
        get(client, dump_server, tmp_path / "file")
    assert len(dump_server.gets("/file")) == 1


def test_waits_double(client: Client, dump_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    dump_server.fault("/file", *[dump_server.refuse(500, Retry_After="soon")] * 4)
    get(client, dump_server, tmp_path / "file")
    assert waits == [0.001, 0.002, 0.004, 0.008]


def test_answers_that_do_not_pass(client: Client, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", dump_server.refuse(403), dump_server.refuse(404))
    with pytest.raises(JobError, match="403"):
        get(client, dump_server, tmp_path / "file")
    with pytest.raises(Absent):
        get(client, dump_server, tmp_path / "file")
    assert len(dump_server.gets("/file")) == 2


def test_a_cut_list_is_asked_for_again(client: Client, dump_server: Any) -> None:
    dump_server.files["/list"] = "añb".encode()
    dump_server.fault("/list", dump_server.cut(2))
    assert client.text(f"{dump_server.url}/list") == "añb"
    assert client.size(f"{dump_server.url}/list") == 4


def test_a_list_that_does_not_end(client: Client, dump_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TEXT_BYTES", 1000)
    monkeypatch.setattr(fetch, "BLOCK", 100)
    dump_server.files["/list"] = b"0" * 1_000_000
    with pytest.raises(JobError, match="/list: this list does not end; check --mirror"):
        client.text(f"{dump_server.url}/list")
    dump_server.files["/list"] = b"0" * 1000
    assert len(client.text(f"{dump_server.url}/list")) == 1000


def test_more_than_was_told_is_not_taken(client: Client, dump_server: Any, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"more than 5e-06 GB came, which is its size"):
        get(client, dump_server, tmp_path / "file", size=5000)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("lengths", ["untold", "chunked"])
def test_a_file_of_unknown_size_does_not_fill_the_disk(
    client: Client, dump_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: str
) -> None:
    monkeypatch.setattr(fetch, "BLOCK", 1000)
    dump_server.lengths = lengths
    dump_server.files["/file"] = DATA
    assert client.size(f"{dump_server.url}/file") is None
    small = dataclasses.replace(client, unsized_bytes=HALF)
    told = rf"/file: more than 0\.00025 GB came, .*{tmp_path}/file\.part: raise"
    for _ in range(2):  # and not once more for each command
        with pytest.raises(JobError, match=told):
            get(small, dump_server, tmp_path / "file", size=None)
        assert (tmp_path / "file.part").stat().st_size <= HALF
        assert not (tmp_path / "file").exists()
    assert len(dump_server.gets("/file")) == 2
    assert sum(get(client, dump_server, tmp_path / "file", size=None)) <= len(DATA) - HALF + 1000
    (tmp_path / "file").unlink()
    get(dataclasses.replace(client, unsized_bytes=len(DATA)), dump_server, tmp_path / "file", size=None)


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/file", "ftp://127.0.0.1/file", "file:///etc/hostname"])
def test_a_redirect_does_not_lead_away_from_encryption(
    client: Client, dump_server: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = HTTPAdapter.send

    def encrypted(adapter: Any, request: Any, **options: Any) -> Any:  # stands for a server with a certificate
        request.url = request.url.replace("https://", "http://")
        return send(adapter, request, **options)

    monkeypatch.setattr(HTTPAdapter, "send", encrypted)
    dump_server.fault("/file", dump_server.refuse(302, Location=target))
    careful, url = dataclasses.replace(client, allow_http=False), dump_server.url.replace("http://", "https://")
    with pytest.raises(JobError, match=rf"{url}/file: .*{target}.*--allow-http"):
        careful.text(f"{url}/file")
    with pytest.raises(JobError, match=r"No connection adapters.*--allow-http"):
        careful.size(f"{dump_server.url}/file")


def test_redirects_are_followed_a_few_times(client: Client, dump_server: Any) -> None:
    dump_server.files["/list"] = b"list"
    dump_server.fault("/moved", dump_server.refuse(301, Location="/list"))
    assert client.text(f"{dump_server.url}/moved") == "list"
    dump_server.fault("/round", *[dump_server.refuse(301, Location="/round")] * 50)
    with pytest.raises(JobError, match="redirects"):
        client.text(f"{dump_server.url}/round")


def test_nobody_there(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with pytest.raises(JobError, match="no connection") as told:
        client.text(url)
    assert "refused" in str(told.value)
    assert str(told.value).count("http") == 1  # the address once, not nested errors
    assert len(waits) == fetch.ATTEMPTS - 1


def test_a_server_that_stalls(dump_server: Any, tmp_path: Path) -> None:
    done = threading.Event()
    dump_server.fault("/file", lambda answer: done.wait(2))
    client = Client(backoff=0.001, timeout=0.05, allow_http=True, notice=lambda text: done.set())
    get(client, dump_server, tmp_path / "file")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_disk_that_fills_up(client: Client, dump_server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"file\.part: the disk is full"):
        get(client, dump_server, tmp_path / "file")


def test_two_commands_do_not_write_one_file(client: Client, dump_server: Any, tmp_path: Path) -> None:
    with fetch._alone(tmp_path / "file.part"), pytest.raises(UserError, match="another command"):
        get(client, dump_server, tmp_path / "file")
    assert dump_server.gets("/file") == []
